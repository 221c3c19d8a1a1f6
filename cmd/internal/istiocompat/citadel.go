package istiocompat

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	headerPrefix = "CA_HEADER_"

	fetcherVariable = "CREDENTIAL_FETCHER_TYPE"
	jwtFetcher      = "JWT"
	gceFetcher      = "GoogleComputeEngine"
)

// isForCitadel reports whether a variable configures the connection to istiod: it has an
// effect only if istiod is chosen.
func isForCitadel(name string) bool {
	return slices.Contains([]string{
		"PILOT_CERT_PROVIDER", "PROV_CERT", "CA_ROOT_CA", "ISTIOD_SAN", "ISTIO_META_CLUSTER_ID", "ISTIO_META_CERT_SIGNER", "JWT_POLICY",
		fetcherVariable,
	}, name) || strings.HasPrefix(name, headerPrefix)
}

// citadel reads how to connect to istiod.
func (t *translator) citadel() {
	setting := func(name, value, variable string) {
		if value != "" {
			t.found = append(t.found, t.choice.setting(name, value, variable))
		}
	}
	setting("server_name", t.set["ISTIOD_SAN"], "ISTIOD_SAN")
	setting("cluster_id", t.set["ISTIO_META_CLUSTER_ID"], "ISTIO_META_CLUSTER_ID")
	setting("cert_signer", t.set["ISTIO_META_CERT_SIGNER"], "ISTIO_META_CERT_SIGNER")
	if folder := t.set["PROV_CERT"]; folder != "" {
		setting("client_cert_file", path.Join(folder, "cert-chain.pem"), "PROV_CERT")
		setting("client_key_file", path.Join(folder, "key.pem"), "PROV_CERT")
		if t.set[fetcherVariable] != gceFetcher { // otherwise there is no token file
			// A workload that has a certificate may have no token any more.
			t.add(t.choice.path("token.optional"), "true", "PROV_CERT")
		}
	}
	root, variable, err := rootFile(t.set)
	setting("root_file", root, variable)
	t.check(err)
	t.citadelToken()
	t.headers()
}

// rootFile returns the file with the roots for the connection, by Istio's rules, and the
// variable that it comes from; empty leaves it to the provider.
func rootFile(set map[string]string) (file, variable string, err error) {
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
	case from == "none" && !plaintext(set["CA_ADDR"]):
		return "", "", errors.New(`PILOT_CERT_PROVIDER is "none": a root is required to verify istiod's certificate; set CA_ROOT_CA to its file, or to SYSTEM`)
	}
	return "", "", nil
}

// citadelToken reads where the token comes from: the metadata server, or the file that
// JWT_POLICY means.
func (t *translator) citadelToken() {
	fetcher, policy := t.set[fetcherVariable], t.set["JWT_POLICY"]
	file := t.choice.path("token.file")
	switch {
	case fetcher == gceFetcher:
		// Istio's agent requests a token for its trust domain.
		t.add(t.choice.path("token.gce.audience"), t.domain, fetcherVariable)
	case fetcher != "" && fetcher != jwtFetcher:
		t.reject(fetcherVariable, fmt.Sprintf("must be %s or %s", jwtFetcher, gceFetcher))
	case policy == "":
	case policy == "third-party-jwt":
		t.add(file, istioToken, "JWT_POLICY")
	case policy == "first-party-jwt":
		t.add(file, kubernetesToken, "JWT_POLICY")
	default:
		t.reject("JWT_POLICY", "must be third-party-jwt or first-party-jwt")
	}
}

// headers collects all CA_HEADER_ variables in one setting.
func (t *translator) headers() {
	headers := map[string]string{}
	for name, value := range t.set {
		if header, ok := strings.CutPrefix(name, headerPrefix); ok {
			headers[header] = value
		}
	}
	if len(headers) > 0 {
		t.found = append(t.found, t.choice.setting("headers", headers, headerPrefix+"…"))
	}
}

// path is the path of something in the chosen entry.
func (c Choice) path(below string) string { return "providers." + c.Entry + "." + below }

// setting assigns one of the provider's settings. The value is JSON, so that text stays
// text whatever it looks like: a cluster may be named 1.
func (c Choice) setting(name string, value any, variable string) Assignment {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err) // never of text and maps of text
	}
	return Assignment{c.path("settings." + name), string(out), variable}
}
