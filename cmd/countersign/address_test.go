package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// addressed has values of CA_ADDR for a provider, and what else its settings require.
type addressed struct {
	good, bad []string
	settings  string // in YAML
}

const arn = "arn:aws:acm-pca:eu-central-1:123456789012:certificate-authority/0b2cbf04-5a3c-4fd3-9d73-2a3f5c1b8d10"

// everyProvider has each provider of the tree; the test fails if one is missing.
func everyProvider(t *testing.T) map[string]addressed {
	root := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(root, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]addressed{
		"acme":       {[]string{"acme://ca.example/directory"}, []string{"acme://http://ca.example/directory", "acme://me@ca.example/directory"}, "{state_dir: /var/lib/acme}"},
		"aws":        {[]string{"aws://" + arn, arn}, []string{"arn:aws:acm:eu-central-1:123456789012:certificate/1", "aws://ca.example:443"}, "{}"},
		"citadel":    {[]string{"citadel://istiod.example:15012", "istiod.example:15012"}, nil, "{root_file: SYSTEM}"},
		"est":        {[]string{"est://est.example:8443", "est://https://est.example"}, []string{"est://http://est.example"}, "{}"},
		"file":       {[]string{"file:///etc/ca"}, nil, "{}"},
		"google":     {[]string{"google://projects/p-12345/locations/l/caPools/n", "googlecas://projects/p-12345/locations/l/caPools/n", "google://meshca.example:443"}, nil, "{}"},
		"kubernetes": {[]string{"kubernetes://10.0.0.1:6443"}, []string{"kubernetes://http://10.0.0.1"}, "{signer_name: example.org/mesh, cluster_trust_bundle: example.org:mesh:roots}"},
		"step":       {[]string{"step://step.example:9000"}, []string{"step://http://step.example"}, "{root_file: SYSTEM}"},
		"vault":      {[]string{"vault://vault.example:8200"}, []string{"vault://http://vault.example:8200", "vault://vault.example:8200?a=b"}, "{role: web}"},
	}
}

// CA_ADDR=NAME://ADDRESS passes the validation of each provider itself. With the lock file, the
// configuration and the provider refuse the same addresses.
func TestAddressReachesEveryProvider(t *testing.T) {
	all := everyProvider(t)
	for _, name := range providersOfTheTree(t) {
		test, ok := all[name]
		if !ok {
			t.Errorf("no address is tested of provider %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := startProbe(t, name)
			for _, at := range test.good {
				if byProvider, byConfig := p.verdicts(t, at, test.settings); byConfig != nil || byProvider != "" {
					t.Errorf("CA_ADDR=%s: by the configuration %v, by the provider %q", at, byConfig, byProvider)
				}
			}
			for _, at := range test.bad {
				if byProvider, byConfig := p.verdicts(t, at, test.settings); byConfig == nil || byProvider == "" {
					t.Errorf("CA_ADDR=%s: by the configuration %v, by the provider %q", at, byConfig, byProvider)
				}
			}
		})
	}
}

func providersOfTheTree(t *testing.T) (names []string) {
	folders, err := os.ReadDir(programs.File(t, "providers"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if folder.IsDir() {
			names = append(names, folder.Name())
		}
	}
	return names
}

// probe is a running provider.
type probe struct {
	*pluginhost.Probe
	name      string
	schema    string
	addresses address.Settings
}

func startProbe(t *testing.T, name string) probe {
	dir := programs.Folder(t, "countersign-provider-"+name)
	opts := pluginhost.Options{Dirs: []string{dir}, Dev: true, RuntimeDir: proctest.Folder(t), Log: slog.New(slog.DiscardHandler)}
	p, err := pluginhost.NewProbe(opts, pluginhost.Entry{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.Launch(); err != nil {
		t.Fatal(err)
	}
	if err := p.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := p.Metadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := address.Of(m.SettingsSchema)
	if err != nil {
		t.Fatal(err)
	}
	return probe{p, name, m.SettingsSchema, addresses}
}

// locked returns the address settings as a lock file has them.
func (p probe) locked() []lock.AddressSetting {
	out := []lock.AddressSetting{}
	for _, one := range p.addresses {
		out = append(out, lock.AddressSetting{Setting: one.Name, Form: string(one.Form), Pattern: one.Pattern})
	}
	return out
}

// verdicts returns what is wrong with CA_ADDR: by the provider, with the settings that the host would
// send, and by the configuration with a lock file.
func (p probe) verdicts(t *testing.T, at, settings string) (byProvider string, byConfig error) {
	pin := strings.Repeat("0", 64)
	c, _, err := config.Read(config.Input{
		FileName: "countersign.yaml", File: []byte("providers: [{name: " + p.name + ", settings: " + settings + "}]"),
		Environ: []string{"CA_ADDR=" + at, "POD_NAMESPACE=demo", "SERVICE_ACCOUNT=web", "GKE_CLUSTER_URL=us-central1-c"},
	})
	if err == nil {
		err = c.Pin("countersign.lock", &lock.Lock{Providers: []lock.Provider{{
			Name: p.name, OS: runtime.GOOS, Arch: runtime.GOARCH, SHA256: pin, AddressSettings: p.locked(),
		}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	byConfig = c.Complete()
	entry := c.Providers[0].ToRun()
	sent, err := p.addresses.Apply(entry.Settings, entry.Address)
	if err != nil {
		return err.Error(), byConfig
	}
	found, err := p.Validate(t.Context(), sent)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range found {
		if !d.Warning {
			byProvider += d.Summary + " " + d.Detail
		}
	}
	return byProvider, byConfig
}
