//go:build check

// Package house_test checks the tree against docs/architecture.md: which package may import
// which, that each module builds on its own, and what the documents name. `make check`
// runs it: it reads the whole tree, which Go's test cache cannot know.
package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	house = "github.com/countersign-dev/countersign"
	root  = "../.."
)

// deps returns what a package of the root module compiles.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	return list(t, ".", "-deps", pkg)
}

func list(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	return strings.Fields(listed(t, dir, args...))
}

// lines returns what `go list` prints, a package a line.
func lines(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(listed(t, dir, args...)), "\n")
}

func listed(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	return string(out)
}

func TestCoreCompilesNoCloudKubernetesOrPlugin(t *testing.T) {
	for _, dep := range deps(t, "./sdk/agent") {
		for _, foreign := range []string{"k8s.io/", "cloud.google.com/", "go-plugin", "coreos/go-oidc", "go-jose/", "go-spiffe/", "prometheus/", "opentelemetry.io/otel"} {
			if strings.Contains(dep, foreign) {
				t.Errorf("sdk/agent compiles %s", dep)
			}
		}
	}
}

// A server that only wants certificates pays for no protocol that it does not speak.
func TestSecretsForTLSCompileNoGRPCEnvoyOrHTTP(t *testing.T) {
	for _, pkg := range []string{"./sdk/secret", "./sdk/tlsconfig"} {
		for _, dep := range deps(t, pkg) {
			for _, foreign := range []string{"google.golang.org/grpc", "go-control-plane", "google.golang.org/protobuf", "net/http"} {
				if strings.HasPrefix(dep, foreign) || strings.Contains(dep, "/"+foreign) {
					t.Errorf("%s compiles %s", pkg, dep)
				}
			}
		}
	}
}

// slow are libraries that keep methods or register messages in each process that links them.
var slow = []string{"hashicorp/", "net/rpc", "/template", "protobuf/reflect/protodesc", "golang/protobuf"}

// What a provider links decides its binary's size, start and CVEs.
func TestProviderSDKStaysSmall(t *testing.T) {
	linksNone(t, deps(t, "./sdk/provider"), append(slow, "k8s.io/", "envoyproxy/", "cncf/xds", "cloud.google.com/", "prometheus/", "opentelemetry.io/otel", "yaml"))
	linksNone(t, list(t, ".", "-deps", "./providers/..."), slow)
	linksNone(t, list(t, "providers/citadel", "-deps", "./..."), slow)
}

func linksNone(t *testing.T, linked, unwanted []string) {
	t.Helper()
	for _, dep := range linked {
		for _, name := range unwanted {
			if strings.Contains(dep, name) {
				t.Errorf("it compiles %s", dep)
			}
		}
	}
}

// The agent's sockets answer reflection without what gRPC's own links.
func TestAgentLinksNoLibraryToMakeDescriptors(t *testing.T) {
	linksNone(t, list(t, "cmd", "-deps", "./countersign"), []string{"protobuf/reflect/protodesc"})
}

// Telemetry is for programs; embedders bring their own.
func TestPluginHostCompilesNoTelemetry(t *testing.T) {
	for _, dep := range list(t, "plugin-host", "-deps", ".") {
		if strings.Contains(dep, "opentelemetry.io/") {
			t.Errorf("plugin-host compiles %s", dep)
		}
	}
}

func TestContractAndPKINeedOnlyStandardLibrary(t *testing.T) {
	for _, pkg := range []string{"./sdk/ca", "./sdk/pki"} {
		for _, dep := range deps(t, pkg) {
			first, _, _ := strings.Cut(dep, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(dep, house) {
				t.Errorf("%s compiles %s", pkg, dep)
			}
		}
	}
}

// Who only wants certificates verified compiles no JOSE, no SPIFFE library and no
// HTTP client.
func TestAuthnNeedsOnlyStandardLibrary(t *testing.T) {
	for _, dep := range deps(t, "./sdk/authn") {
		first, _, _ := strings.Cut(dep, "/")
		if dep == "net/http" || strings.Contains(first, ".") && !strings.HasPrefix(dep, house) {
			t.Errorf("sdk/authn compiles %s", dep)
		}
	}
}

// arrows are the imports that each package of the sdk, and each that serves Kubernetes'
// secrets, may have of the house.
var arrows = map[string][]string{

	"sdk/ca":                            {},
	"sdk/pki":                           {"internal/clock", "internal/text"},
	"sdk/trace":                         {"internal/text"},
	"sdk/token":                         {"internal/clock", "internal/host/command", "internal/host/safefile", "internal/redact", "internal/rotation", "internal/text", "internal/transport", "sdk/ca"},
	"sdk/token/exchange":                {"internal/clock", "internal/endpoint", "internal/text", "sdk/ca", "sdk/token"},
	"sdk/secret":                        {"internal/call", "internal/clock", "internal/loglimit", "internal/memory", "internal/redact", "internal/rootfeed", "internal/rotation", "internal/text", "internal/version", "internal/watchers", "sdk/ca", "sdk/pki", "sdk/trace"},
	"sdk/xds":                           {"internal/text", "internal/version"},
	"sdk/sds":                           {"internal/clock", "sdk/internal/grpcsocket", "sdk/internal/unixcaller", "internal/text", "internal/version", "sdk/ca", "sdk/pki", "sdk/secret", "sdk/unixpeer", "sdk/xds"},
	"sdk/workloadapi":                   {"internal/clock", "internal/holder", "sdk/internal/grpcsocket", "sdk/internal/reflection", "sdk/internal/unixcaller", "sdk/internal/workload", "internal/loglimit", "internal/text", "proto/spiffe/workload/v1", "sdk/ca", "sdk/pki", "sdk/secret", "sdk/unixpeer"},
	"sdk/broker":                        {"internal/host/process", "internal/loglimit", "internal/recent", "internal/text", "internal/tokenbucket", "proto/spiffe/workload/v1", "sdk/ca", "sdk/internal/grpcsocket", "sdk/internal/unixcaller", "sdk/internal/workload", "sdk/pki", "sdk/secret", "sdk/tlsconfig", "sdk/workloadapi"},
	"sdk/broker/pods":                   {"internal/text", "internal/watchers", "sdk/broker", "sdk/ca", "sdk/kubeapi"},
	"sdk/jwtsvid":                       {"internal/clock", "internal/jws", "internal/redact", "internal/text", "internal/watchers", "sdk/ca", "sdk/internal/tokensource", "sdk/trace"},
	"sdk/witsvid":                       {"internal/clock", "internal/jws", "internal/redact", "internal/rotation", "internal/text", "internal/watchers", "sdk/ca", "sdk/internal/share", "sdk/internal/tokensource", "sdk/pki", "sdk/trace"},
	"sdk/internal/tokensource":          {"internal/clock", "internal/holder", "internal/jws", "internal/loglimit", "internal/redact", "internal/rotation", "internal/text", "internal/watchers", "sdk/ca", "sdk/pki", "sdk/trace"},
	"sdk/unixpeer":                      {"internal/host/process"},
	"sdk/internal/grpcsocket":           {"internal/host/errno", "internal/host/unixsocket", "internal/inbound", "internal/loglimit", "internal/strangers", "internal/text", "sdk/internal/reflection", "sdk/unixpeer"},
	"sdk/internal/reflection":           {},
	"sdk/internal/unixcaller":           {"sdk/secret", "sdk/unixpeer"},
	"sdk/internal/workload":             {"sdk/secret"},
	"sdk/filesecret":                    {"internal/clock", "internal/host/filewatch", "internal/host/safefile", "internal/text", "internal/version", "internal/watchers", "sdk/pki", "sdk/secret"},
	"sdk/spiresecret":                   {"internal/clock", "internal/host/unixsocket", "internal/loglimit", "internal/rotation", "internal/text", "internal/version", "internal/watchers", "proto/spiffe/workload/v1", "sdk/ca", "sdk/pki", "sdk/secret", "sdk/unixpeer"},
	"sdk/state":                         {"internal/host/errno", "internal/host/safefile", "sdk/ca", "sdk/secret"},
	"sdk/keysource/pkcs11":              {"sdk/ca", "sdk/pki", "sdk/secret"},
	"sdk/gateway":                       {"internal/clock", "internal/host/safefile", "internal/rotation", "internal/text", "internal/transport", "internal/version", "internal/watchers", "sdk/ca", "sdk/pki", "sdk/secret", "sdk/xds"},
	"sdk/revocation":                    {"internal/call", "internal/clock", "internal/host/filewatch", "internal/host/safefile", "internal/rotation", "internal/text", "internal/version", "internal/watchers", "sdk/ca", "sdk/pki", "sdk/secret"},
	"sdk/agent":                         {"sdk/gateway", "sdk/identities", "sdk/ondemand", "sdk/revocation", "sdk/sds", "sdk/secret", "sdk/trace", "sdk/workloadapi"},
	"sdk/authn":                         {"internal/clock", "internal/text", "sdk/ca", "sdk/pki"},
	"sdk/authn/federation":              {"internal/clock", "internal/endpoint", "internal/jws", "internal/rotation", "internal/text", "sdk/ca", "sdk/pki"},
	"sdk/authn/jwt":                     {"internal/clock", "internal/endpoint", "internal/host/safefile", "internal/jws", "internal/text", "sdk/authn", "sdk/ca", "sdk/pki"},
	"sdk/authn/tokenreview":             {"internal/clock", "internal/text", "sdk/authn", "sdk/ca", "sdk/kubeapi", "sdk/token"},
	"sdk/kubeapi":                       {"internal/clock", "internal/endpoint", "internal/rotation", "internal/text", "sdk/ca", "sdk/token"},
	"sdk/catest":                        {"sdk/ca", "sdk/pki"},
	"sdk/provider/rest":                 {"internal/endpoint", "internal/text", "sdk/ca", "sdk/pki", "sdk/provider/setting"},
	"sdk/provider/wire":                 {"internal/host/errno", "internal/jws", "internal/memory", "internal/text", "proto/provider/v1", "sdk/ca", "sdk/pki", "sdk/trace"},
	"sdk/provider":                      {"internal/host/address", "internal/endpoint", "internal/host/protect", "internal/host/selfsigned", "internal/memory", "internal/program/buildinfo", "internal/suggest", "internal/text", "internal/transport", "sdk/ca", "sdk/pki", "sdk/provider/wire", "sdk/trace"},
	"sdk/provider/chain":                {"sdk/ca", "sdk/pki"},
	"sdk/languages":                     {},
	"sdk/provider/setting":              {"internal/endpoint", "internal/host/safefile", "internal/text", "sdk/pki", "sdk/provider/filewatch"},
	"sdk/provider/filewatch":            {"internal/host/filewatch"},
	"sdk/provider/testkit":              {"internal/test/proctest", "internal/test/programs", "sdk/ca", "sdk/pki", "sdk/provider/wire"},
	"sdk/tlsconfig":                     {"sdk/ca", "internal/text", "sdk/pki", "sdk/secret"},
	"sdk/tlsconfig/grpccreds":           {"sdk/tlsconfig"},
	"sdk/tlsconfig/certprovider":        {"internal/host/unixsocket", "sdk/filesecret", "sdk/pki", "sdk/secret", "sdk/spiresecret", "sdk/tlsconfig"},
	"sdk/tlsconfig/httptransport":       {"internal/transport", "sdk/pki", "sdk/tlsconfig"},
	"sdk/catest/conformance":            {"internal/clock", "internal/host/address", "internal/host/command", "internal/host/reference", "internal/jws", "internal/text", "proto/provider/v1", "proto/provider/v2", "sdk/ca", "sdk/pki", "sdk/provider/wire"},
	"sdk/identities":                    {"internal/call", "internal/clock", "internal/redact", "internal/rotation", "internal/tokenbucket", "internal/watchers", "sdk/ca", "sdk/internal/schedule", "sdk/pki", "sdk/secret"},
	"sdk/internal/schedule":             {"internal/call", "internal/rotation", "sdk/ca", "sdk/internal/share", "sdk/secret"},
	"sdk/internal/share":                {},
	"sdk/ondemand":                      {"internal/call", "internal/clock", "internal/rotation", "internal/watchers", "sdk/ca", "sdk/internal/schedule", "sdk/internal/share", "sdk/ondemand/ask", "sdk/ondemand/names", "sdk/pki", "sdk/secret"},
	"sdk/ondemand/ask":                  {"internal/endpoint", "internal/host/command", "internal/recent", "internal/text", "internal/tokenbucket", "sdk/ca", "sdk/internal/share", "sdk/ondemand/names"},
	"sdk/ondemand/budget":               {"internal/clock", "internal/tokenbucket", "sdk/ca"},
	"sdk/ondemand/kubestore":            {"internal/clock", "internal/loglimit", "internal/recent", "internal/rotation", "sdk/ca", "sdk/kubeapi", "sdk/ondemand/names", "sdk/pki", "sdk/secret"},
	"sdk/ondemand/names":                {"internal/host/filewatch", "internal/host/safefile"},
	"sdk/controlplane":                  {"sdk/sds", "sdk/secret", "sdk/xds"},
	"ra":                                {"internal/call", "internal/clock", "internal/loglimit", "internal/peers", "internal/recent", "internal/redact", "internal/rootfeed", "internal/rotation", "internal/text", "internal/tokenbucket", "sdk/ca", "sdk/pki", "ra/internal/rootphase", "ra/internal/schedule", "sdk/trace"},
	"ra/share":                          {"internal/peers", "internal/rotation", "internal/text"},
	"ra/internal/rootphase":             {"internal/clock", "internal/peers", "internal/rotation", "sdk/pki"},
	"ra/internal/schedule":              {"internal/rotation", "internal/tokenbucket", "sdk/ca"},
	"discovery":                         {"internal/clock", "internal/inbound", "internal/strangers", "internal/text", "sdk/authn", "sdk/ca", "sdk/xds"},
	"discovery/hub":                     {},
	"discovery/folder/internal/pattern": {},
	"discovery/folder":                  {"internal/host/filewatch", "internal/host/safefile", "internal/suggest", "internal/text", "internal/version", "proto/istio/networking/nds/v1", "discovery", "discovery/folder/internal/pattern", "discovery/hub", "sdk/pki", "sdk/xds"},
	"kubernetes":                        {},
	"ra/istioca":                        {"ra/istioca/internal/chains", "internal/call", "internal/clock", "internal/inbound", "internal/loglimit", "internal/strangers", "internal/text", "proto/istio/security/v1alpha1", "sdk/authn", "sdk/ca", "sdk/pki", "ra", "ra/share", "sdk/trace"},
	"ra/istioca/internal/chains":        {"ra"},
	"kubernetes/kubeconfig":             {"internal/text", "sdk/ca", "sdk/pki"},
	"kubernetes/fleet":                  {"kubernetes/kubeconfig", "internal/host/filewatch", "internal/host/safefile", "internal/rotation", "internal/text", "sdk/authn", "sdk/authn/tokenreview", "sdk/ca"},
	"kubernetes/access":                 {"internal/clock", "internal/text"},
	"kubernetes/secrets":                {"kubernetes/access", "internal/clock", "internal/text", "discovery", "discovery/hub", "sdk/pki", "sdk/xds"},
	"kubernetes/istiodtls":              {"kubernetes/istiodtls/istiod", "kubernetes/owned", "internal/rotation", "internal/text", "sdk/ca", "sdk/pki", "ra", "sdk/secret"},
	"kubernetes/istiodtls/istiod":       {"ra"},
	"kubernetes/meshroots":              {"kubernetes/owned", "kubernetes/signing", "internal/rotation", "internal/text", "sdk/pki"},
	"kubernetes/livepods":               {"ra/istioca", "kubernetes/signing"},
	"kubernetes/signing":                {"internal/clock", "internal/loglimit", "internal/rotation", "internal/text", "sdk/ca", "ra"},
	"kubernetes/kubetest":               {"internal/test/certtest", "internal/test/fatal", "internal/test/proctest"},
	"plugin-host":                       {"internal/clock", "internal/host/address", "internal/host/filewatch", "internal/host/reference", "internal/host/selfsigned", "internal/redact", "internal/rotation", "internal/text", "plugin-host/internal/attach", "plugin-host/internal/confine", "plugin-host/internal/process", "internal/host/verified", "sdk/ca", "sdk/provider/wire", "sdk/trace"},
	"cmd/internal/otlp":                 {"internal/text", "internal/transport", "sdk/ca", "sdk/provider/setting", "sdk/trace"},
	"plugin-host/lock":                  {"internal/host/address", "internal/host/reference", "internal/host/safefile", "internal/text", "internal/host/verified", "sdk/provider/wire"},
	"plugin-host/internal/confine":      {},
	"internal/host/verified":            {"internal/text", "sdk/provider/wire"},
	"plugin-host/internal/process":      {"internal/host/command", "internal/host/errno", "internal/host/selfsigned", "internal/http2frames", "internal/loglimit", "internal/redact", "internal/text", "plugin-host/internal/confine", "internal/host/verified", "sdk/ca", "sdk/pki", "sdk/provider/wire"},
	"plugin-host/debugger":              {"internal/host/selfsigned", "plugin-host/internal/attach", "plugin-host/internal/process", "sdk/ca", "sdk/provider/wire"},
	"plugin-host/internal/attach":       {"plugin-host/internal/process", "internal/host/verified", "sdk/ca", "sdk/provider/wire", "sdk/unixpeer"},
	"internal/program/output":           {"internal/text"},
	"plugin-host/providertest":          {"internal/host/command", "internal/host/reference", "plugin-host", "internal/program/output", "proto/provider/v1", "sdk/ca", "sdk/catest/conformance", "sdk/pki", "sdk/provider/wire"},
	"kubernetes/certmanager":            {"kubernetes/certmanager/v1alpha1", "kubernetes/signing", "internal/rotation", "internal/text", "sdk/ca", "sdk/pki", "ra"},
	"kubernetes/certmanager/v1alpha1":   {},

	"kubernetes/record":              {"internal/peers", "internal/text", "ra/share", "sdk/ca", "sdk/pki"},
	"kubernetes/signing/real":        {},
	"kubernetes/certmanager/real":    {},
	"kubernetes/signing/podcert":     {"kubernetes/signing", "internal/clock", "internal/text", "sdk/ca", "ra"},
	"kubernetes/owned":               {"internal/loglimit", "internal/rotation", "internal/text"},
	"kubernetes/signing/trustbundle": {"kubernetes/owned", "kubernetes/signing", "internal/rotation", "internal/text", "sdk/ca", "sdk/pki", "ra"},
	"kubernetes/signing/guard":       {"kubernetes/signing", "internal/loglimit", "internal/rotation", "internal/text", "sdk/ca", "sdk/pki", "ra"},
	"kubernetes/signing/csr":         {"kubernetes/signing", "internal/text", "sdk/ca", "sdk/pki", "ra"},
	"kubernetes/signing/lease":       {"internal/peers", "internal/text", "sdk/ca", "ra"},
}

func TestImportsFollowArrows(t *testing.T) {
	for dir, patterns := range map[string][]string{
		".": {"./sdk/...", "./ra/...", "./discovery/..."}, "sdk/keysource/pkcs11": {"./..."}, "ra/istioca": {"./..."}, "kubernetes": {"./..."}, "plugin-host": {"./..."},
	} {
		for _, pkg := range list(t, dir, append([]string{"-f", `{{.ImportPath}}{{range .Imports}},{{.}}{{end}}`}, patterns...)...) {
			path, imports, _ := strings.Cut(pkg, ",")
			checkArrows(t, strings.TrimPrefix(path, house+"/"), strings.Split(imports, ","))
		}
	}
}

func checkArrows(t *testing.T, name string, imports []string) {
	t.Helper()
	allowed, known := arrows[name]
	if !known {
		t.Errorf("%s has no arrows: add it here and to docs/architecture.md", name)
		return
	}
	for _, imported := range imports {
		rest, ours := strings.CutPrefix(imported, house+"/")
		if ours && !slices.Contains(allowed, rest) {
			t.Errorf("%s imports %s", name, rest)
		}
	}
}

// rooms are the packages that the program countersign is made of, and which of the others each may
// import; main has the commands. Those of cmd/internal are of all programs that host providers.
var rooms = map[string][]string{
	"program/cli":         {"program/environ"},
	"program/config":      {"program/istiocompat", "program/output"},
	"program/daemon":      {"program/cli", "program/config", "program/environ", "program/overview", "program/settings", "program/wiring"},
	"program/deploytest":  {},
	"program/environ":     {},
	"program/followed":    {"program/config"},
	"program/istiocompat": {},
	"program/otlp":        {},
	"program/output":      {},
	"program/overview":    {},
	"program/programtest": {"program/cli", "program/environ"},
	"program/publish":     {"program/config"},
	"program/schematest":  {"program/config"},
	"program/settings":    {"program/config", "program/environ", "program/wiring"},
	"program/wiring":      {"program/config", "program/environ"},

	"demand":           {"program/config", "program/environ", "program/wiring"},
	"demand/bootstrap": {},
	"agent":            {"program/cli", "program/config", "demand", "demand/bootstrap", "program/environ", "program/followed", "metrics", "monitoring", "program/otlp", "program/output", "outputs", "program/overview", "program/publish", "proxy", "settings", "status", "program/wiring", "workloads"},
	"handover":         {"catalog", "program/cli", "program/environ", "program/wiring"},
	"catalog":          {"schema"},
	"doctor":           {"catalog", "schema"},
	"explain":          {"agent", "program/cli", "program/config", "program/environ", "settings"},
	"install":          {},
	"metrics":          {"program/output", "proxy", "status"},
	"outputs":          {"program/config", "program/output", "status"},
	"monitoring":       {},
	"provider":         {"catalog", "program/cli", "program/config", "doctor", "program/environ", "install", "program/overview", "scaffold", "schema", "settings", "program/wiring"},
	"program":          {"agent", "catalog", "explain", "handover", "provider", "secrets", "setup", "top", "program/cli", "program/environ"},
	"proxy":            {},
	"scaffold":         {},
	"schema":           {},
	"secrets":          {"program/cli", "program/config", "program/environ", "settings"},
	"setup":            {"program/cli"},
	"settings":         {"program/cli", "program/config", "program/environ", "program/istiocompat", "program/wiring"},
	"status":           {"program/output", "program/overview", "proxy"},
	"top":              {"program/cli", "program/environ", "settings"},
	"workloads":        {"program/config", "program/wiring"},
}

func TestProgramPackagesFollowArrows(t *testing.T) {
	short := strings.NewReplacer(house+"/cmd/countersign/internal/", "", house+"/cmd/internal/", "program/")
	for _, line := range lines(t, "cmd", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		pkg, imports, _ := strings.Cut(line, " ")
		name := short.Replace(pkg)
		allowed, known := rooms[name]
		below := name != pkg
		if below && !known {
			t.Errorf("%s is not in rooms", name)
		}
		for imported := range strings.FieldsSeq(imports) {
			if rest := short.Replace(imported); below && rest != imported && !slices.Contains(allowed, rest) {
				t.Errorf("%s imports %s", name, rest)
			}
		}
	}
}

// A program's packages are its own: what two programs need stands beside them.
func TestNoProgramImportsAnothers(t *testing.T) {
	program := regexp.MustCompile(`^` + regexp.QuoteMeta(house) + `/cmd/countersign[a-z-]*`)
	for _, module := range []string{"cmd", "cmd/countersign-discovery", "cmd/countersign-ra"} {
		for _, line := range lines(t, module, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
			pkg, imports, _ := strings.Cut(line, " ")
			for imported := range strings.FieldsSeq(imports) {
				if of := program.FindString(imported); of != program.FindString(pkg) && of != "" {
					t.Errorf("%s imports %s", pkg, imported)
				}
			}
		}
	}
}

// A provider uses what a stranger's provider can use, in its tests, too.
func TestProvidersImportNothingInternal(t *testing.T) {
	for _, module := range []struct{ dir, pattern string }{{".", "./providers/..."}, {"providers/aws", "./..."}, {"providers/citadel", "./..."}, {"providers/google", "./..."}} {
		format := `{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`
		for _, line := range lines(t, module.dir, "-tags", "e2e", "-f", format, module.pattern) {
			pkg, imports, _ := strings.Cut(line, " ")
			for imported := range strings.FieldsSeq(imports) {
				if strings.HasPrefix(imported, house+"/internal/") {
					t.Errorf("%s imports %s", pkg, imported)
				}
			}
		}
	}
}

// The door for meshes asks Kubernetes through an interface.
func TestIstioDoorCompilesNoKubernetes(t *testing.T) {
	for _, dep := range list(t, "ra/istioca", "-deps", ".") {
		if strings.HasPrefix(dep, "k8s.io/") || strings.HasPrefix(dep, house+"/kubernetes") {
			t.Errorf("istioca compiles %s", dep)
		}
	}
}

// The server of the discovery service knows neither Kubernetes nor secrets.
func TestDiscoveryCompilesNoKubernetesOrSecrets(t *testing.T) {
	for _, dep := range list(t, ".", "-deps", "./discovery") {
		for _, foreign := range []string{"k8s.io/", "go-plugin", "prometheus/", house + "/sdk/secret", house + "/sdk/sds", house + "/providers"} {
			if strings.Contains(dep, foreign) {
				t.Errorf("discovery compiles %s", dep)
			}
		}
	}
}

// wings are what each of them may not compile: only cmd has all of them.
var wings = []struct {
	dir, pattern string
	foreign      []string
}{
	{".", "./sdk/...", []string{"ra", "discovery", "kubernetes", "plugin-host", "providers", "cmd"}},
	{".", "./ra/...", []string{"discovery", "kubernetes", "plugin-host", "providers", "cmd"}},
	{"ra/istioca", "./...", []string{"discovery", "kubernetes", "plugin-host", "providers", "cmd"}},
	{".", "./discovery/...", []string{"ra", "kubernetes", "plugin-host", "providers", "cmd"}},
	{"kubernetes", "./...", []string{"plugin-host", "cmd"}},
	{"plugin-host", "./...", []string{"ra", "discovery", "kubernetes", "cmd"}},
}

// What all wings use compiles the contract alone; helpers of tests may compile more.
func TestInternalCompilesContractAlone(t *testing.T) {
	var shared []string
	for _, pkg := range list(t, ".", "./internal/...") {
		if !strings.HasPrefix(pkg, house+"/internal/test/") {
			shared = append(shared, pkg)
		}
	}
	for _, dep := range list(t, ".", append([]string{"-deps"}, shared...)...) {
		rest, ours := strings.CutPrefix(dep, house+"/")
		if ours && !strings.HasPrefix(rest, "internal/") && !slices.Contains([]string{"sdk/ca", "sdk/pki", "sdk/trace"}, rest) {
			t.Errorf("internal compiles %s", rest)
		}
	}
}

func TestWingsStandApart(t *testing.T) {
	for _, wing := range wings {
		for _, dep := range list(t, wing.dir, "-deps", "-test", wing.pattern) {
			rest, ours := strings.CutPrefix(dep, house+"/")
			first, _, _ := strings.Cut(rest, "/")
			if ours && slices.Contains(wing.foreign, first) {
				t.Errorf("%s in %s compiles %s", wing.pattern, wing.dir, rest)
			}
		}
	}
}

// Kubernetes is for those who serve its secrets, and for tests against real API servers.
func TestKubernetesReachesNoOtherModule(t *testing.T) {
	for _, dir := range modules {
		if slices.Contains([]string{"kubernetes", "cmd/countersign-discovery", "cmd/countersign-ra", "test"}, dir) {
			continue
		}
		for _, dep := range everything(t, dir) {
			if strings.HasPrefix(dep, "k8s.io/") {
				t.Errorf("%s compiles %s", dir, dep)
			}
		}
	}
}

// modules are the folders with a go.mod of their own.
var modules = []string{".", "cmd", "cmd/countersign-discovery", "cmd/countersign-ra", "examples", "kubernetes", "plugin-host", "providers/aws", "providers/citadel", "providers/google", "ra/istioca", "sdk/keysource/pkcs11", "test"}

// go-control-plane's caches and stream servers are for callers of sdk/controlplane only.
func TestGoControlPlaneCacheReachesNoOtherModule(t *testing.T) {
	for _, dir := range modules {
		if dir == "." || dir == "examples" {
			continue
		}
		for _, dep := range everything(t, dir) {
			if strings.HasPrefix(dep, "github.com/envoyproxy/go-control-plane/pkg/") {
				t.Errorf("%s compiles %s", dir, dep)
			}
		}
	}
}

// gRPC's own xDS client, which the tests in e2e run, brings Google's metadata client.
func TestCloudPackagesReachNoOtherModule(t *testing.T) {
	for _, dir := range modules {
		for _, dep := range everything(t, dir) {
			switch {
			case dir != "providers/aws" && strings.HasPrefix(dep, "github.com/aws/"):
				t.Errorf("%s compiles %s", dir, dep)
			case dir == "providers/google" || dir == "test":
			case strings.HasPrefix(dep, "cloud.google.com/"), strings.HasPrefix(dep, "google.golang.org/api/"):
				t.Errorf("%s compiles %s", dir, dep)
			}
		}
	}
}

// everything returns what a module compiles with its tests, and asks once.
func everything(t *testing.T, dir string) []string {
	t.Helper()
	if compiled[dir] == nil {
		compiled[dir] = list(t, dir, "-deps", "-test", "./...")
	}
	return compiled[dir]
}

var compiled = map[string][]string{}

// Each module must build from its own go.mod and go.sum: go.work hides what is
// missing there.
func TestEachModuleIsTidy(t *testing.T) {
	for _, dir := range modules {
		cmd := exec.Command("go", "mod", "tidy", "-diff")
		cmd.Dir = filepath.Join(root, dir)
		cmd.Env = append(cmd.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%.2000s", dir, err, out)
		}
	}
}

// Each module is built with the Go of go.work, without go.work, too. Those who import it need not:
// a toolchain line counts in the main module alone.
func TestEachModuleNamesToolchainOfWorkspace(t *testing.T) {
	line := regexp.MustCompile(`(?m)^go 1\.26\.0\n\ntoolchain go[0-9.]+$`)
	want := line.FindString(read(t, "go.work"))
	for _, dir := range append([]string{"tools/api", "tools/cross", "tools/lint", "tools/modules", "tools/proto"}, modules...) {
		if got := line.FindString(read(t, filepath.Join(dir, "go.mod"))); want == "" || got != want {
			t.Errorf("%s/go.mod has %q, go.work %q", dir, got, want)
		}
	}
}

// Go prefers the hybrid key exchange X25519MLKEM768 where nobody says otherwise; a list of curves
// would take that away from every peer. The test files may have lists.
func TestNoTLSConfigNarrowsKeyExchange(t *testing.T) {
	for _, path := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok && name.Name == "CurvePreferences" {
				t.Errorf("%s has CurvePreferences: leave the choice to crypto/tls", path)
			}
			return true
		})
	}
}

// A trust anchor's own signature says nothing: pki.SelfSigned alone decides what is a root. A test's
// reader of credential folders shares no code with what it checks.
func TestSelfSignedIsDecidedInOnePlace(t *testing.T) {
	own := regexp.MustCompile(`(\w+)\.CheckSignature(From\((\w+)\)|\((\w+)\.SignatureAlgorithm)|(\w+)\.RawSubject, (\w+)\.RawIssuer|(\w+)\.RawIssuer, (\w+)\.RawSubject`)
	for _, path := range goFiles(t) {
		if path == "sdk/pki/bundle.go" || path == "internal/test/credentialfolder/credentialfolder.go" {
			continue
		}
		for _, found := range own.FindAllStringSubmatch(read(t, path), -1) {
			if same(found[1], found[3]) || same(found[1], found[4]) || same(found[5], found[6]) || same(found[7], found[8]) {
				t.Errorf("%s has %s: use pki.SelfSigned", path, found[0])
			}
		}
	}
}

func same(a, b string) bool { return a != "" && a == b }

// A terminal acts on what encoding/json leaves raw: what programs print goes through text.WriteJSON.
func TestProgramsPrintJSONInOneWay(t *testing.T) {
	for _, path := range goFiles(t) {
		if !strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "cmd/internal/schematest/") {
			continue
		}
		if text := read(t, path); strings.Contains(text, "json.NewEncoder(") || strings.Contains(text, "json.MarshalIndent(") {
			t.Errorf("%s encodes JSON: use text.WriteJSON", path)
		}
	}
}

// goFiles returns the Go files of all modules, for every system, except tests.
func goFiles(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(goFilesAndTests(t), func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

func goFilesAndTests(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "--", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.Fields(string(out))
	if len(paths) < 100 {
		t.Fatalf("only %d Go files", len(paths))
	}
	return paths
}

// A copy of programs takes up to 150 MB of the disk until the main of the tests removes it.
func TestCopiesOfProgramsAreRemoved(t *testing.T) {
	copies, removes := regexp.MustCompile(`\bprograms\.Folder\(`), regexp.MustCompile(`\bprograms\.Remove\(|programtest\.Main\(`)
	copied, removed := map[string]bool{}, map[string]bool{} // folders
	for _, path := range goFilesAndTests(t) {
		text, dir := read(t, path), filepath.Dir(path)
		copied[dir] = copied[dir] || copies.MatchString(text)
		removed[dir] = removed[dir] || removes.MatchString(text)
	}
	for dir, has := range copied {
		if has && !removed[dir] {
			t.Errorf("the tests of %s copy programs: end them with programs.Remove", dir)
		}
	}
}

// By default, gRPC takes 16 MiB of metadata with each call and reply.
func TestEachGRPCEndBoundsMetadata(t *testing.T) {
	ends, bounds := regexp.MustCompile(`grpc\.New(Server|Client)\(`), regexp.MustCompile(`MaxHeaderListSize\(|wire\.ServerOptions\(`)
	found, bounded := map[string]bool{}, map[string]bool{} // folders
	for _, path := range goFiles(t) {
		if strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "tools/") {
			continue
		}
		text := read(t, path)
		found[filepath.Dir(path)] = found[filepath.Dir(path)] || ends.MatchString(text)
		bounded[filepath.Dir(path)] = bounded[filepath.Dir(path)] || bounds.MatchString(text)
	}
	for folder, found := range found {
		if found && !bounded[folder] {
			t.Errorf("%s makes a gRPC client or server without a MaxHeaderListSize: bound it by 64 KiB", folder)
		}
	}
}

// gRPC bounds a request, and not all of them together. A provider's only client is the host.
func TestEachGRPCServerBoundsUnfinishedRequests(t *testing.T) {
	var servers int
	for _, path := range goFiles(t) {
		text := read(t, path)
		if strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "tools/") ||
			strings.HasPrefix(path, "sdk/provider/") || !strings.Contains(text, "grpc.NewServer(") || strings.Contains(text, "wire.ServerOptions(") {
			continue
		}
		servers++
		bare := strings.Count(text, "grpc.Creds(") - strings.Count(text, "grpc.Creds(inbound.Process().Credentials(")
		if bare != 0 || !strings.Contains(text, "grpc.Creds(") {
			t.Errorf("%s makes a gRPC server whose connections are not followed: wrap its credentials by inbound.Process().Credentials", path)
		}
	}
	if servers < 3 {
		t.Errorf("only %d servers found", servers)
	}
}

// A key of some Mbit costs seconds for each signature that is checked: what strangers send
// goes through pki, which refuses it. So does what a program made itself; it is simpler so.
// pem.Decode skips a block that it cannot read; pki.Blocks names it.
func TestCertificatesAreParsedInOnePlace(t *testing.T) {
	parsers := regexp.MustCompile(`x509\.ParseCertificates?\(|x509\.ParseCertificateRequest\(|\.AppendCertsFromPEM\(|pem\.Decode\(`)
	for _, dir := range modules {
		for _, line := range lines(t, dir, "-f", `{{.Dir}} {{join .GoFiles " "}}`, "./...") {
			folder, files, _ := strings.Cut(line, " ")
			below, err := filepath.Abs(root)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimPrefix(strings.TrimPrefix(folder, below), "/")
			if name == "sdk/pki" || strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "internal/test/") || name == "kubernetes/kubetest" {
				continue
			}
			for file := range strings.FieldsSeq(files) {
				if found := parsers.FindString(read(t, filepath.Join(name, file))); found != "" {
					t.Errorf("%s calls %s: use package pki, which bounds the sizes of keys and names malformed blocks", filepath.Join(name, file), found)
				}
			}
		}
	}
}

// A transport of its own has no dial timeout, so one dead address of a name hides all the others.
func TestTransportsAreMadeInOnePlace(t *testing.T) {
	for _, path := range goFiles(t) {
		if strings.HasPrefix(path, "internal/transport/") || strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "internal/test/") || strings.HasPrefix(path, "tools/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if made := transportOf(n); made != "" {
				t.Errorf("%s has %s: take the transport from internal/transport, in a provider from sdk/provider", path, made)
			}
			return true
		})
	}
}

// transportOf names what makes or takes an HTTP transport of its own.
func transportOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CompositeLit:
		switch name := httpName(n.Type); name {
		case "Transport":
			return "an http.Transport"
		case "Client":
			if !slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
				pair, ok := e.(*ast.KeyValueExpr)
				if !ok {
					return false
				}
				key, ok := pair.Key.(*ast.Ident)
				return ok && key.Name == "Transport"
			}) {
				return "an http.Client without a Transport"
			}
		}
	case *ast.SelectorExpr:
		if name := httpName(n); slices.Contains([]string{"DefaultTransport", "DefaultClient", "Get", "Head", "Post", "PostForm"}, name) {
			return "http." + name
		}
	case *ast.CallExpr:
		if made, ok := n.Fun.(*ast.Ident); ok && made.Name == "new" && slices.Contains([]string{"Transport", "Client"}, httpName(n.Args[0])) {
			return "new(http." + httpName(n.Args[0]) + ")"
		}
	}
	return ""
}

// httpName returns NAME for http.NAME.
func httpName(e ast.Expr) string {
	if selected, ok := e.(*ast.SelectorExpr); ok {
		if pkg, ok := selected.X.(*ast.Ident); ok && pkg.Name == "http" {
			return selected.Sel.Name
		}
	}
	return ""
}

// notAnswers are the files with a doubling wait of their own: none is for what an authority answers.
var notAnswers = map[string]string{
	"providers/acme/acmeca/port.go":                "the next Accept of a listener",
	"providers/aws/awspca/issue.go":                "looks at one certificate, within one call",
	"providers/kubernetes/kubeca/ca.go":            "looks at one request, within one call",
	"cmd/countersign/internal/secrets/secrets.go":  "a command at a terminal",
	"plugin-host/internal/confine/cgroup_linux.go": "a cgroup that empties",
	"sdk/filesecret/look.go":                       "a file that is read",
	"cmd/internal/output/run.go":                   "a file that is written",
}

// What an authority answers is waited for by one table and by both clocks: rotation.Waits and its
// Pause. A backoff of its own goes by one clock, and counts on after a certificate's end.
func TestAnswersHaveOneBackoff(t *testing.T) {
	own := regexp.MustCompile(`backoff/v\d|\b[\w.]*([wW]ait|[pP]ause|[bB]ackoff|[rR]etry)\w* \*= 2|2 ?\* ?[\w.]*([wW]ait|[pP]ause|[bB]ackoff|[rR]etry)\w*\b|([wW]ait|[pP]ause|[bB]ackoff)\w* ?<< `)
	seen := map[string]bool{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/rotation/") || strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "internal/test/") || strings.HasPrefix(path, "tools/") || strings.HasPrefix(path, "examples/") {
			continue
		}
		found := own.FindString(read(t, path))
		if found == "" {
			continue
		}
		if seen[path] = true; notAnswers[path] == "" {
			t.Errorf("%s has %q: use rotation.Waits, and its Pause, for what an authority answers", path, found)
		}
	}
	for path := range notAnswers {
		if !seen[path] {
			t.Errorf("%s has no wait of its own any more: remove it from notAnswers", path)
		}
	}
}
