package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Files are secrets that other programs provide in files.
type Files struct {
	// Mounted selects whether "default" and "ROOTCA", each on its own, come from the files
	// that platforms mount (./var/run/secrets/workload-spiffe-credentials, ./etc/certs):
	// auto uses them if they exist at startup, only uses nothing else and no provider,
	// and never ignores them. Default: auto.
	Mounted string `json:"mounted"`
	// Secrets are served from files, under these names.
	Secrets []FileSecret `json:"secrets"`
	// CredentialFolder is a SPIFFE credential folder: its certificate is "default", the roots of
	// its trust domain are "ROOTCA", those of another are "spiffe://example.com". The variable
	// SPIFFE_CREDENTIAL_FOLDER sets it. Default: none.
	CredentialFolder string `json:"credential_folder"`
	// Folders are the only ones that the names file-cert:<chain>~<key> and file-root:<ca>
	// may refer to. Default: those that platforms mount; an empty list allows none.
	Folders []string `json:"folders"`
	// Debounce is how long to wait for more changes after the first. Default: 100ms.
	Debounce Duration `json:"debounce"`
}

// FileSecret is one secret in files: chain and key, or roots.
type FileSecret struct {
	Name  string `json:"name"`
	Chain string `json:"chain"`
	Key   string `json:"key"`
	// Roots is a file of certificates, or "system" for the system's roots.
	Roots string `json:"roots"`

	rule string // why it exists if the file does not set it
}

// What Files.Mounted may be.
const (
	MountedAuto = "auto"
	MountedOnly = "only"
	MountedOff  = "never"
)

func defaultFiles() Files {
	return Files{
		Mounted: MountedAuto, Folders: []string{filesecret.CredentialsFolder, filesecret.CertificatesFolder},
		Debounce: Duration{100 * time.Millisecond},
	}
}

// completeFiles finds mounted files, and checks the rest.
func (c *Config) completeFiles(p *problems) {
	f := &c.Files
	c.oneOf(p, "files.mounted", f.Mounted, MountedAuto, MountedOnly, MountedOff)
	if f.Debounce.Duration < 0 || f.Debounce.Duration > time.Minute {
		c.say(p, "files.debounce", f.Debounce, "write 0s to 1m")
	}
	for i, s := range f.Secrets {
		c.checkFileSecret(p, s, i)
	}
	c.completeCredential(p)
	if f.Mounted == MountedOnly {
		c.Providers, c.DefaultProvider = nil, ""
	}
	if f.Mounted != MountedOff {
		f.Secrets = append(f.Secrets, c.mounted()...)
	}
	if (istiocompat.IsUsual(c.choice.Rule) || c.foreign != nil) && !c.needsProvider() {
		c.Providers, c.DefaultProvider = nil, "" // none is configured, or none is needed
	}
}

func (c *Config) checkFileSecret(p *problems, s FileSecret, i int) {
	pair, bundle := s.Chain != "" && s.Key != "", s.Roots != ""
	switch {
	case s.Name == "" || len(s.Name) > maxSecretName || strings.HasPrefix(s.Name, "file-"):
		c.say(p, fmt.Sprintf("files.secrets.%d.name", i), s.Name, fmt.Sprintf("write 1 to %d bytes that do not begin with file-", maxSecretName))
	case pair == bundle, bundle && s.Chain+s.Key != "":
		p.add(fmt.Errorf("files.secrets.%s: write either chain and key, or roots", text.Clean(s.Name)))
	case s.Name == DefaultSecret && bundle, s.Name == RootCA && pair:
		p.add(fmt.Errorf("files.secrets.%s: clients expect a key-pair by the name default and a trust-bundle by the name ROOTCA", s.Name))
	case c.configured(s.Name):
		p.add(fmt.Errorf("%.256q is both in secrets and in files.secrets: use each name once", s.Name))
	case slices.ContainsFunc(c.Files.Secrets[:i], func(other FileSecret) bool { return other.Name == s.Name }):
		p.add(fmt.Errorf("files.secrets has %.256q twice: use each name once", s.Name))
	}
}

// completeCredential adds the names that a SPIFFE credential folder has.
func (c *Config) completeCredential(p *problems) {
	folder := c.Files.CredentialFolder
	if folder == "" {
		return
	}
	for _, name := range []string{DefaultSecret, RootCA} {
		if c.configured(name) || c.FromOthers(name) {
			c.say(p, "files.credential_folder", folder, name+" comes from elsewhere, too; remove one of the two")
			return
		}
	}
	if slices.ContainsFunc(c.Outputs, func(o Output) bool { return o.SPIFFEFolder != "" && absolute(o.SPIFFEFolder) == absolute(folder) }) {
		c.say(p, "files.credential_folder", folder, "an output writes this folder; read another one")
		return
	}
	rule := cmp.Or(c.origins["files.credential_folder"], "files.credential_folder") + " names the folder"
	whole := filepath.Join(folder, filesecret.CredentialBundle)
	c.Files.Secrets = append(c.Files.Secrets,
		FileSecret{Name: DefaultSecret, Chain: whole, Key: whole, rule: rule},
		FileSecret{Name: RootCA, Roots: folder, rule: rule})
}

// federates reports whether a name is that of a trust domain in the credential folder.
func (f Files) federates(name string) bool {
	domain, ok := strings.CutPrefix(name, "spiffe://")
	return ok && f.CredentialFolder != "" && pki.CheckTrustDomain(domain) == nil
}

// mounted returns "default" and "ROOTCA", each from the first layout that has it. If files
// are the only source, the agent waits for the last layout.
func (c *Config) mounted() (found []FileSecret) {
	layouts := slices.DeleteFunc(filesecret.Layouts(), c.isOwn)
	first := func(name string, has func(filesecret.Layout) bool, of func(filesecret.Layout) FileSecret) {
		if c.answered(name) || c.configured(name) && c.Files.Mounted == MountedAuto {
			return
		}
		i := slices.IndexFunc(layouts, has)
		if i < 0 && c.Files.Mounted == MountedOnly {
			i = len(layouts) - 1
		}
		if i >= 0 {
			s := of(layouts[i])
			s.rule = "the files are mounted"
			if c.Files.Mounted == MountedOnly {
				s.rule = "files.mounted is only"
			}
			found = append(found, s)
		}
	}
	first(DefaultSecret, filesecret.Layout.HasPair, func(l filesecret.Layout) FileSecret {
		return FileSecret{Name: DefaultSecret, Chain: l.Chain, Key: l.Key}
	})
	first(RootCA, filesecret.Layout.HasRoots, func(l filesecret.Layout) FileSecret { return FileSecret{Name: RootCA, Roots: l.Roots} })
	return found
}

// isOwn reports whether the agent itself writes the files of a layout, or presents them to a
// CA: on a virtual machine PROV_CERT and OUTPUT_CERTS are /etc/certs, and an agent that
// served these files would never renew them.
func (c *Config) isOwn(l filesecret.Layout) bool {
	folder := absolute(filepath.Dir(l.Chain))
	if slices.ContainsFunc(c.Outputs, func(o Output) bool { return absolute(o.Place()) == folder }) {
		return true
	}
	return slices.ContainsFunc(c.Providers, func(p Provider) bool {
		shown, _ := p.Settings["client_cert_file"].(string)
		return shown != "" && absolute(filepath.Dir(shown)) == folder
	})
}

func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// configured reports whether "secrets" has an entry of that name.
func (c *Config) configured(name string) bool {
	return c.find(name) >= 0
}

// Names returns the names that are served from files, sorted.
func (f Files) Names() []string {
	var names []string
	for _, s := range f.Secrets {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// FromFiles reports whether a name is served from files.
func (c *Config) FromFiles(name string) bool {
	return c.Files.federates(name) || slices.ContainsFunc(c.Files.Secrets, func(s FileSecret) bool { return s.Name == name })
}

// answered reports whether a name needs no CA.
func (c *Config) answered(name string) bool {
	return c.FromOthers(name) || c.elsewhere(name) || slices.Contains(c.absent, name)
}

// signed leaves out the secrets that come from another program.
func (c *Config) signed(secrets []Secret) []Secret {
	return slices.DeleteFunc(secrets, func(s Secret) bool { return c.answered(s.Name) })
}

// needsProvider reports whether a secret, a JWT-SVID or a WIT-SVID has to be signed.
func (c *Config) needsProvider() bool {
	needed := func(name string) bool { return !c.answered(name) && !c.spireAlone(name) }
	others := slices.ContainsFunc(c.Secrets, func(s Secret) bool { return needed(s.Name) })
	return others || needed(DefaultSecret) || needed(RootCA) || c.WorkloadAPI.JWTSVID.On() || c.ServesWIT()
}
