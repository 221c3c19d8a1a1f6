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
	// Where Istio mounts a token for istiod, and Kubernetes one for itself.
	istioToken      = "./var/run/secrets/tokens/istio-token"
	kubernetesToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path

	headerPrefix = "CA_HEADER_"

	fetcherVariable = "CREDENTIAL_FETCHER_TYPE"
	jwtFetcher      = "JWT"
	gceFetcher      = "GoogleComputeEngine"
)

// isForCitadel tells whether a variable is about the connection to istiod: it has
// an effect where that is chosen.
func isForCitadel(name string) bool {
	return slices.Contains([]string{
		"PILOT_CERT_PROVIDER", "PROV_CERT", "CA_ROOT_CA", "ISTIOD_SAN", "ISTIO_META_CLUSTER_ID", "ISTIO_META_CERT_SIGNER", "JWT_POLICY",
		fetcherVariable,
	}, name) || strings.HasPrefix(name, headerPrefix)
}

// citadelFromIstio returns what the variables say of the connection to istiod.
func citadelFromIstio(set map[string]string, choice Choice, domain string) ([]Assignment, error) {
	var found []Assignment
	setting := func(name, value, variable string) {
		if value != "" {
			found = append(found, choice.setting(name, value, variable))
		}
	}
	setting("server_name", set["ISTIOD_SAN"], "ISTIOD_SAN")
	setting("cluster_id", set["ISTIO_META_CLUSTER_ID"], "ISTIO_META_CLUSTER_ID")
	setting("cert_signer", set["ISTIO_META_CERT_SIGNER"], "ISTIO_META_CERT_SIGNER")
	entry := "providers." + choice.Entry
	if folder := set["PROV_CERT"]; folder != "" {
		setting("client_cert_file", path.Join(folder, "cert-chain.pem"), "PROV_CERT")
		setting("client_key_file", path.Join(folder, "key.pem"), "PROV_CERT")
		if set[fetcherVariable] != gceFetcher { // else there is no file that may be missing
			// Who has a certificate to show may have no token any more.
			found = append(found, Assignment{entry + ".token_optional", "true", "PROV_CERT"})
		}
	}
	var wrong problems
	root, variable, err := rootFromIstio(set)
	setting("root_file", root, variable)
	wrong.check(err)
	token, err := tokenFromIstio(set, entry, domain)
	wrong.check(err)
	found = append(found, token...)
	return append(found, headersFromIstio(set, choice)...), wrong.err()
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
	case from == "none" && !plaintext(set["CA_ADDR"]):
		return "", "", errors.New(`PILOT_CERT_PROVIDER is "none": istiod's certificate is verified with a root; set CA_ROOT_CA to its file, or to SYSTEM`)
	}
	return "", "", nil
}

// plaintext tells whether an address is istiod's without TLS.
func plaintext(address string) bool { return strings.HasSuffix(address, ":15010") }

// checkCertProvider refuses an unknown source of that root whoever is chosen: a
// misspelt one would leave the connection to the default.
func checkCertProvider(from string) error {
	signer, named := strings.CutPrefix(from, "k8s.io/")
	if named && signer != "" || slices.Contains([]string{"", "istiod", "kubernetes", "custom", "none"}, from) {
		return nil
	}
	return fmt.Errorf("PILOT_CERT_PROVIDER is %q: istiod, kubernetes, custom, none or k8s.io/SIGNER is allowed", clip(from))
}

// tokenFromIstio returns where an entry's token comes from: the metadata server, or
// the file that JWT_POLICY means. Nothing leaves it to the default, the third party's.
func tokenFromIstio(set map[string]string, entry, domain string) ([]Assignment, error) {
	file := func(name string) []Assignment { return []Assignment{{entry + ".token_file", name, "JWT_POLICY"}} }
	fetcher, policy := set[fetcherVariable], set["JWT_POLICY"]
	switch {
	case fetcher == gceFetcher:
		// Istio's agent asks for a token for its trust domain.
		return []Assignment{{entry + ".token.gce.audience", domain, fetcherVariable}}, nil
	case fetcher != "" && fetcher != jwtFetcher:
		return nil, fmt.Errorf("%s is %q: %s or %s is allowed", fetcherVariable, clip(fetcher), jwtFetcher, gceFetcher)
	case policy == "":
		return nil, nil
	case policy == "third-party-jwt":
		return file(istioToken), nil
	case policy == "first-party-jwt":
		return file(kubernetesToken), nil
	}
	return nil, fmt.Errorf("JWT_POLICY is %q: third-party-jwt or first-party-jwt is allowed", clip(policy))
}

// headersFromIstio returns the one setting that all headers are.
func headersFromIstio(set map[string]string, choice Choice) []Assignment {
	headers := map[string]string{}
	for name, value := range set {
		if header, ok := strings.CutPrefix(name, headerPrefix); ok {
			headers[header] = value
		}
	}
	if len(headers) == 0 {
		return nil
	}
	return []Assignment{choice.setting("headers", headers, headerPrefix+"…")}
}

func inJSON(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err) // text and maps of text always can be
	}
	return string(out)
}
