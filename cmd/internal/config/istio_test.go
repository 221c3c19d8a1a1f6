package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
)

// Where Istio mounts a token for istiod, and Kubernetes one for itself.
const (
	istioToken      = "./var/run/secrets/tokens/istio-token"
	kubernetesToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// TestIstioVariablesRankBetweenFlagAndFile holds the table of Istio's
// environment: what each variable sets, that a flag comes before it, that it comes
// before the file, and what there is without any.
func TestIstioVariablesRankBetweenFlagAndFile(t *testing.T) {
	const citadel = "providers.citadel."
	for _, test := range []struct {
		variable, setting string
		want              any // of the variable
		file              string
		inFile, byDefault any
	}{
		{"CA_ADDR=i.svc:15012", citadel + "address", "i.svc:15012", "providers: [{name: citadel, address: f.svc:1}]", "f.svc:1", ""},
		{"CA_PROVIDER=Other", "default_provider", "other", "default_provider: citadel\nproviders: [{name: citadel}, {name: other}]", "citadel", "citadel"},
		{"PILOT_CERT_PROVIDER=custom", citadel + "settings.root_file", "./etc/certs/root-cert.pem", "providers: [{name: citadel, settings: {root_file: f.pem}}]", "f.pem", nil},
		{"PROV_CERT=/p", citadel + "settings.client_cert_file", "/p/cert-chain.pem", "providers: [{name: citadel, settings: {client_cert_file: f.pem}}]", "f.pem", nil},
		{"PROV_CERT=/p", citadel + "settings.client_key_file", "/p/key.pem", "providers: [{name: citadel, settings: {client_key_file: f.pem}}]", "f.pem", nil},
		{"PROV_CERT=/p", citadel + "token.optional", true, "providers: [{name: citadel, token: {optional: false}}]", false, false},
		{"SECRET_TTL=2h", "ttl", "2h0m0s", "ttl: 1h", "1h0m0s", "24h0m0s"},
		{"SECRET_GRACE_PERIOD_RATIO=0.25", "rotation.ratio", 0.25, "rotation: {ratio: 0.75}", 0.75, 0.5},
		{"SECRET_GRACE_PERIOD_RATIO_JITTER=0", "rotation.jitter", 0.0, "rotation: {jitter: 0.2}", 0.2, 0.1},
		{"WORKLOAD_RSA_KEY_SIZE=3072", "key_type", "rsa-3072", "key_type: ed25519", "ed25519", "ecdsa-p256"},
		{"ECC_SIGNATURE_ALGORITHM=ECDSA", "key_type", "ecdsa-p256", "key_type: ed25519", "ed25519", "ecdsa-p256"},
		{"ECC_CURVE=P384", "key_type", "ecdsa-p384", "key_type: ed25519", "ed25519", "ecdsa-p256"},
		{"TRUST_DOMAIN=example.org", "trust_domain", "example.org", "trust_domain: example.net", "example.net", "cluster.local"},
		{"POD_NAMESPACE=shop", "namespace", "shop", "namespace: bank", "bank", ""},
		{"SERVICE_ACCOUNT=till", "service_account", "till", "service_account: desk", "desk", ""},
		{"ISTIO_META_CLUSTER_ID=1", citadel + "settings.cluster_id", "1", "providers: [{name: citadel, settings: {cluster_id: f}}]", "f", nil},
		{"ISTIO_META_CERT_SIGNER=true", citadel + "settings.cert_signer", "true", "providers: [{name: citadel, settings: {cert_signer: f}}]", "f", nil},
		{"JWT_POLICY=first-party-jwt", citadel + "token.file", kubernetesToken, "providers: [{name: citadel, token: {file: f}}]", "f", istioToken},
		{"JWT_POLICY=third-party-jwt", citadel + "token.file", istioToken, "providers: [{name: citadel, token: {file: f}}]", "f", istioToken},
		{"CA_ROOT_CA=SYSTEM", citadel + "settings.root_file", "SYSTEM", "providers: [{name: citadel, settings: {root_file: f.pem}}]", "f.pem", nil},
		{"CA_HEADER_x-a=b", citadel + "settings.headers.x-a", "(set)", "providers: [{name: citadel, settings: {headers: {x-a: c}}}]", "(set)", nil},
		{"ISTIOD_SAN=ca.mesh", citadel + "settings.server_name", "ca.mesh", "providers: [{name: citadel, settings: {server_name: f}}]", "f", nil},
		{"WORKLOAD_IDENTITY_SOCKET_FILE=sds", "socket.path", "./var/run/secrets/workload-spiffe-uds/sds", "socket: {path: f}", "f", istiocompat.Socket},
	} {
		variable, _, _ := strings.Cut(test.variable, "=")
		environ := []string{"COUNTERSIGN_DEV=true", test.variable}
		byFlag := flag(test.setting, fmt.Sprint(flagged(test.byDefault)))
		for _, layers := range []struct {
			name    string
			file    string
			environ []string
			flags   []Assignment
			want    any
			from    []string
		}{
			{"default", "", environ[:1], nil, test.byDefault, []string{"default", "where Istio mounts it", "CA_PROVIDER, CA_ADDR and providers are unset: istiod at its usual address"}},
			{"file", test.file, environ[:1], nil, test.inFile, []string{"countersign.yaml:1"}},
			{"variable", "", environ, nil, test.want, []string{variable}},
			{"variable over file", test.file, environ, nil, test.want, []string{variable}},
			{"flag over all", test.file, environ, []Assignment{byFlag}, flagged(test.byDefault), []string{byFlag.Origin}},
		} {
			c := understood(t, layers.file, layers.environ, layers.flags...)
			for i := range c.Providers {
				c.Providers[i].locked.SecretSettings = []string{}
			}
			got := lookUp(c, test.setting)
			if strings.HasSuffix(got.From, "CA_HEADER_…") {
				got.From = variable // the headers are one setting
			}
			if want := masked(test.setting, layers.want); got.Value != want || want != nil && !slices.Contains(layers.from, got.From) {
				t.Errorf("%s, %s: got %+v, want %v", test.variable, layers.name, got, want)
			}
		}
	}
}

// flagged is what a flag sets in the test, of the kind of the default.
func flagged(byDefault any) any {
	switch byDefault.(type) {
	case bool:
		return false
	case float64:
		return 0.125
	}
	return "5h0m0s" // good for text and for time
}

func masked(setting string, value any) any {
	if value != nil && strings.Contains(setting, ".headers.") {
		return hidden
	}
	return value
}

// understood reads layers that need not make sense together.
func understood(t *testing.T, file string, environ []string, flags ...Assignment) Config {
	t.Helper()
	c, _, err := Read(Input{FileName: "countersign.yaml", File: []byte(file), Environ: environ, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Complete()
	return c
}

// lookUp returns a setting, or nothing.
func lookUp(c Config, setting string) Explained {
	for _, e := range c.Explain() {
		if e.Setting == setting {
			return e
		}
	}
	return Explained{}
}
