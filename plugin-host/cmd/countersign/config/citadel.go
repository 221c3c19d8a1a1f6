package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	// citadelProvider speaks with istiod's CA.
	citadelProvider = "citadel"
	citadelEntry    = "providers." + citadelProvider

	// Where Istio mounts a token for istiod, and Kubernetes one for itself.
	istioToken      = "./var/run/secrets/tokens/istio-token"
	kubernetesToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path

	headerPrefix = "CA_HEADER_"
)

// isForCitadel tells whether a variable is about the connection to istiod: it has
// an effect where CA_ADDR or CA_PROVIDER choose that.
func isForCitadel(name string) bool {
	return slices.Contains([]string{
		"PILOT_CERT_PROVIDER", "PROV_CERT", "CA_ROOT_CA", "ISTIOD_SAN", "ISTIO_META_CLUSTER_ID", "ISTIO_META_CERT_SIGNER", "JWT_POLICY",
	}, name) || strings.HasPrefix(name, headerPrefix)
}

// citadelFromIstio returns what the variables say of the connection to istiod.
func citadelFromIstio(set map[string]string) ([]Assignment, error) {
	var found []Assignment
	setting := func(name, value, variable string) {
		if value != "" {
			// In JSON, so that it is text whatever it looks like: a cluster may be called 1.
			found = append(found, Assignment{citadelEntry + ".settings." + name, inJSON(value), variable})
		}
	}
	setting("address", set["CA_ADDR"], "CA_ADDR")
	setting("server_name", set["ISTIOD_SAN"], "ISTIOD_SAN")
	setting("cluster_id", set["ISTIO_META_CLUSTER_ID"], "ISTIO_META_CLUSTER_ID")
	setting("cert_signer", set["ISTIO_META_CERT_SIGNER"], "ISTIO_META_CERT_SIGNER")
	if folder := set["PROV_CERT"]; folder != "" {
		setting("client_cert_file", path.Join(folder, "cert-chain.pem"), "PROV_CERT")
		setting("client_key_file", path.Join(folder, "key.pem"), "PROV_CERT")
		// Who has a certificate to show may have no token any more.
		found = append(found, Assignment{citadelEntry + ".token_optional", "true", "PROV_CERT"})
	}
	var wrong problems
	root, variable, err := rootFromIstio(set)
	setting("root_file", root, variable)
	wrong.check(err)
	token, err := tokenFromIstio(set)
	wrong.check(err)
	return slices.Concat(found, token, headersFromIstio(set)), wrong.err()
}

// rootFromIstio returns the file with the roots for the connection, by Istio's
// rules, and the variable that it comes from; empty leaves it to the provider.
func rootFromIstio(set map[string]string) (file, variable string, err error) {
	from := set["PILOT_CERT_PROVIDER"]
	switch {
	case set["CA_ROOT_CA"] != "":
		return set["CA_ROOT_CA"], "CA_ROOT_CA", nil
	case from == "custom":
		return "./etc/certs/root-cert.pem", "PILOT_CERT_PROVIDER", nil
	case from == "kubernetes":
		return "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "PILOT_CERT_PROVIDER", nil
	case set["PROV_CERT"] != "":
		return path.Join(set["PROV_CERT"], "root-cert.pem"), "PROV_CERT", nil
	case from == "none" && !strings.HasSuffix(set["CA_ADDR"], ":15010"):
		return "", "", errors.New(`PILOT_CERT_PROVIDER is "none": istiod's certificate is verified with a root; set CA_ROOT_CA to its file, or to SYSTEM`)
	case !slices.Contains([]string{"", "istiod", "none"}, from) && !strings.HasPrefix(from, "k8s.io/"):
		return "", "", fmt.Errorf("PILOT_CERT_PROVIDER is %q: istiod, kubernetes, custom, none or k8s.io/SIGNER is allowed", clip(from))
	}
	return "", "", nil
}

func tokenFromIstio(set map[string]string) ([]Assignment, error) {
	var file string
	switch policy := set["JWT_POLICY"]; policy {
	case "":
		return nil, nil
	case "third-party-jwt":
		file = istioToken
	case "first-party-jwt":
		file = kubernetesToken
	default:
		return nil, fmt.Errorf("JWT_POLICY is %q: third-party-jwt or first-party-jwt is allowed", clip(policy))
	}
	return []Assignment{{citadelEntry + ".token_file", file, "JWT_POLICY"}}, nil
}

func headersFromIstio(set map[string]string) []Assignment {
	headers := map[string]string{}
	for name, value := range set {
		if header, ok := strings.CutPrefix(name, headerPrefix); ok {
			headers[header] = value
		}
	}
	if len(headers) == 0 {
		return nil
	}
	return []Assignment{{citadelEntry + ".settings.headers", inJSON(headers), headerPrefix + "…"}}
}

func inJSON(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err) // text and maps of text always can be
	}
	return string(out)
}
