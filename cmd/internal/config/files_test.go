package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/sdk/filesecret"
)

// mount makes empty files of a layout in a working folder of the test's.
func mount(t *testing.T, paths ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMountedFilesComeFirstPerName(t *testing.T) {
	layouts := filesecret.Layouts()
	istio, gke, etc := layouts[0], layouts[1], layouts[2]
	for name, test := range map[string]struct {
		there         []string
		file          string
		pair, roots   string // where these come from; empty is the provider
		signed, needs int
	}{
		"nothing":              {nil, working, "", "", 2, 1},
		"both in /etc/certs":   {[]string{etc.Chain, etc.Key, etc.Roots}, working, etc.Chain, etc.Roots, 0, 1},
		"GKE's before that":    {[]string{etc.Chain, etc.Key, gke.Chain, gke.Key, etc.Roots}, working, gke.Chain, etc.Roots, 0, 1},
		"Istio's before that":  {[]string{istio.Chain, istio.Key, gke.Chain, gke.Key}, working, istio.Chain, "", 1, 1},
		"a root alone":         {[]string{istio.Roots}, working, "", istio.Roots, 1, 1},
		"a chain without key":  {[]string{etc.Chain}, working, "", "", 2, 1},
		"without any provider": {[]string{etc.Chain, etc.Key, etc.Roots}, "{}", etc.Chain, etc.Roots, 0, 0},
		"off":                  {[]string{etc.Chain, etc.Key, etc.Roots}, working + "files: {mounted: never}", "", "", 2, 1},
		"only":                 {[]string{gke.Roots}, working + "files: {mounted: only}", etc.Chain, gke.Roots, 0, 0},
		"an entry of the file": {[]string{etc.Chain, etc.Key}, working + "files: {secrets: [{name: default, chain: c, key: k}]}", "c", "", 1, 1},
		"an entry of a secret": {[]string{etc.Chain, etc.Key}, working + "secrets: [{name: default, dns_names: [a.example]}]", "", "", 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			mount(t, test.there...)
			c, _ := mustLoad(t, test.file, nil)
			of := func(name string) (s FileSecret) {
				if i := slices.IndexFunc(c.Files.Secrets, func(s FileSecret) bool { return s.Name == name }); i >= 0 {
					s = c.Files.Secrets[i]
				}
				return s
			}
			if got := of(DefaultSecret).Chain; got != test.pair {
				t.Errorf("default comes from %q, want %q", got, test.pair)
			}
			if got := of(RootCA).Roots; got != test.roots {
				t.Errorf("ROOTCA comes from %q, want %q", got, test.roots)
			}
			if len(c.Secrets) != test.signed || len(c.Providers) != test.needs {
				t.Errorf("%d secrets are signed by %d providers", len(c.Secrets), len(c.Providers))
			}
		})
	}
}

// Some CAs return their roots only with a certificate.
func TestRootsBesideMountedCertificateUseWorkloadNames(t *testing.T) {
	etc := filesecret.Layouts()[2]
	mount(t, etc.Chain, etc.Key)
	c, _ := mustLoad(t, working, nil)
	roots := c.Secrets[0]
	if roots.Name != RootCA || roots.SPIFFEID != "spiffe://cluster.local/ns/demo/sa/web" || roots.KeyType != c.KeyType || roots.TTL != c.TTL {
		t.Errorf("got %+v", roots)
	}
}

func TestFilesOfTheAgentAreNotMounted(t *testing.T) {
	etc := filesecret.Layouts()[2]
	mount(t, etc.Chain, etc.Key, etc.Roots)
	folder, err := filepath.Abs(filesecret.CertificatesFolder)
	if err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{"PROV_CERT=" + folder, "OUTPUT_CERTS=./etc/certs/"} {
		c, _ := mustLoad(t, "dev: true", append([]string{"CA_ADDR=istiod:15012", variable}, identity...))
		if len(c.Files.Secrets) != 0 || len(c.Secrets) != 2 {
			t.Errorf("%s: from files come %v", variable, c.Files.Secrets)
		}
	}
}

func TestWrongFilesAndOutputsAreOneSentenceEach(t *testing.T) {
	for file, want := range map[string]string{
		"files: {mounted: yes}":                                                         `files.mounted is`,
		"files: {debounce: 2m}":                                                         `files.debounce is 2m0s: write 0s to 1m`,
		"files: {secrets: [{chain: c, key: k}]}":                                        `files.secrets.0.name is not set`,
		"files: {secrets: [{name: a, chain: c}]}":                                       `files.secrets.a: write either chain and key, or roots`,
		"files: {secrets: [{name: a, chain: c, key: k, roots: r}]}":                     `files.secrets.a: write either chain and key, or roots`,
		"files: {secrets: [{name: default, roots: r}]}":                                 `clients expect a key-pair by the name default`,
		"files: {secrets: [{name: a, roots: r}, {name: a, roots: r}]}":                  `files.secrets has "a" twice`,
		"files: {secrets: [{name: a, roots: r}]}\nsecrets: [{name: a, dns_names: [b]}]": `"a" is both in secrets and in files.secrets`,
		"outputs: [{folder: f}]":                                                        `outputs.0.name is not set`,
		"outputs: [{name: o}]":                                                          `outputs.o: name a folder`,
		"outputs: [{name: o, folder: f, secret: x}]":                                    `outputs.o.secret is "x": no secret of that name is configured`,
		"outputs: [{name: o, folder: f, files: [{name: k, content: keys}]}]":            `the file "k" is to hold "keys"`,
		"outputs: [{name: o, folder: f, reload: {command: [nginx]}}]":                   `outputs.o.reload.command is "nginx": begin it with the absolute path`,
		"outputs: [{name: o, folder: f, reload: {signal: KILL}}]":                       `outputs.o.reload.signal is "KILL": must be HUP, INT`,
		"outputs: [{name: o, folder: f, reload: {signal: HUP}}]":                        `signal needs pid_file, and executable`,
		"outputs: [{name: o, folder: f, reload: {user: root}}]":                         `pid_file, executable and user need signal`,
		"outputs: [{name: o, folder: f, reload: {signal: HUP, command: [/x]}}]":         `write either command or signal`,
		"outputs: [{name: o, folder: f}, {name: p, folder: ./f}]":                       `outputs.p and outputs.o both write f/key.pem`,
		"outputs: [{name: o, folder: f, link: l, files: [{name: k, content: key}]}, {name: p, folder: f, link: l, files: [{name: c, content: chain}]}]": `outputs.p and outputs.o both write f/l`,
	} {
		_, _, err := load(working+file, nil)
		wantError(t, err, want)
	}
}
