// Package istiocompat holds what the configuration needs of Istio's agent, and of the two
// CAs that it supports: the variables, CA_ADDR's forms, the default paths, and the defaults
// of the providers "citadel" and "google". Package config calls it: [Translate] while it
// reads the environment, [TokenFile] and [ExchangesItself] while it completes a provider's
// entry. Its functions are pure; only [CheckRoot] looks at a file.
package istiocompat

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// The paths of Istio's agent, relative to its working directory.
const (
	Socket        = "./var/run/secrets/workload-spiffe-uds/socket"
	FilesSocket   = "./var/run/secrets/credential-uds/files-socket" // beside another program's Socket
	GatewaySocket = "./var/run/ingress_gateway/sds"                 // of Istio's node agent
	istiodRoot    = "./var/run/secrets/istio/root-cert.pem"

	// Tokens for istiod and for Kubernetes itself.
	istioToken = "./var/run/secrets/tokens/istio-token"
	// eksToken is where EKS puts a pod's token for AWS.
	eksToken        = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token"
	kubernetesToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path
)

// Istiod is istiod's address in most meshes.
const Istiod = "istiod.istio-system.svc:15012"

// TokenRule explains the token file that [TokenFile] has chosen for a provider.
func TokenRule(provider string) string {
	if provider == aws {
		return "where EKS mounts it"
	}
	return "where Istio mounts it"
}

// Assignment is the value of one setting of the agent's configuration.
type Assignment struct {
	Path   string // "rotation.ratio", "providers.file.sha256"
	Value  string
	Origin string // "SECRET_TTL", "--ttl"
}

// Choice is the CA that signs "default", and the rule that chose it.
type Choice struct {
	Entry    string `json:"provider"` // its name in "providers"
	Provider string `json:"binary"`   // its provider's name
	Rule     string `json:"because"`
}

// Given is the part of the configuration, without Istio's variables, on which their meaning
// depends.
type Given struct {
	TrustDomain string
	Gateway     bool               // gateway.enabled
	Proxy       bool               // the agent runs one
	HotRestart  bool               // proxy.reload.hot_restart
	Admin       string             // proxy.drain.admin
	Providers   []pluginhost.Entry // with Name, Provider and Settings
	Chosen      Choice             // by providers and default_provider alone
}

// Translation is what the variables say, in terms of the agent's own settings.
type Translation struct {
	Choice      Choice
	Assignments []Assignment
	Warnings    []string // variables that have no effect
}

// Translate reads the variables of Istio's agent. No variable that is set is ignored
// silently. The error joins one error for each faulty variable.
func Translate(environ map[string]string, given Given) (Translation, error) {
	t := translator{set: map[string]string{}, given: given}
	for name, value := range environ {
		if value != "" {
			t.set[name] = value
		}
	}
	t.proxyConfig()
	t.domain = cmp.Or(t.set["TRUST_DOMAIN"], given.TrustDomain)
	t.ca()
	t.files()
	t.gateway()
	t.rest()
	t.google()
	t.key()
	t.socket()
	t.drain()
	t.hotRestart()
	t.probes()
	t.passedOver()
	for i, a := range t.found {
		t.found[i].Origin = t.origin(a.Origin)
	}
	return Translation{t.choice, t.found, t.warnings}, errors.Join(t.wrong...)
}

// TokenFile is the default token file of a provider's entry; empty: none.
func TokenFile(provider string, settings map[string]any) string {
	if provider == citadel || provider == google && (settings["protocol"] == meshCA || ExchangesItself(provider, settings)) {
		return istioToken
	}
	if provider == aws && ExchangesItself(provider, settings) {
		return eksToken
	}
	return ""
}

// ExchangesItself reports whether by the settings the provider exchanges the token.
func ExchangesItself(provider string, settings map[string]any) bool {
	return (provider == google || provider == aws) && settings["exchange"] != nil
}

// CheckRoot reports the missing file with the root that istiod, at that address, is verified with.
// Without it, an agent would fail to connect forever.
func CheckRoot(entry, provider, address string, settings map[string]any) error {
	root, _ := settings["root_file"].(string)
	root = cmp.Or(root, istiodRoot)
	if provider != citadel || plaintext(address) || root == "SYSTEM" {
		return nil
	}
	if _, err := os.Stat(root); err != nil {
		return fmt.Errorf("providers.%s.settings.root_file is %q: cannot verify istiod's certificate: %w; mount the file, or set CA_ROOT_CA to another file or to SYSTEM", entry, root, err)
	}
	return nil
}

// translator collects a [Translation].
type translator struct {
	set       map[string]string // without empty variables
	given     Given
	config    proxyConfig
	domain    string // trust domain
	choice    Choice
	gatewayOn bool // by the variables or as given
	found     []Assignment
	warnings  []string
	wrong     []error
}

func (t *translator) add(path, value, origin string) {
	t.found = append(t.found, Assignment{path, value, origin})
}

func (t *translator) warn(format string, args ...any) {
	t.warnings = append(t.warnings, fmt.Sprintf(format, args...))
}

// origin is where a variable is set: in the environment, or in PROXY_CONFIG.
func (t *translator) origin(variable string) string {
	return cmp.Or(t.config.metadata[variable], variable)
}

// reject reports a variable's value; fix names what is allowed.
func (t *translator) reject(name, fix string) {
	t.wrong = append(t.wrong, fmt.Errorf("%s is %.256q: %s", t.origin(name), t.set[name], fix))
}

func (t *translator) check(err error) {
	if err != nil {
		t.wrong = append(t.wrong, err)
	}
}

func (t *translator) oneOf(name, fix string, allowed ...string) {
	if value := t.set[name]; value != "" && !slices.Contains(allowed, value) {
		t.reject(name, fix)
	}
}

// plaintext reports whether an address is istiod's port without TLS.
func plaintext(address string) bool { return strings.HasSuffix(address, ":15010") }
