package config

const (
	// citadelProvider speaks with istiod's CA.
	citadelProvider = "citadel"
	// istioToken is where Istio mounts the token for istiod.
	istioToken = "./var/run/secrets/tokens/istio-token"
)
