package filesecret

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const defaultMaxNames = 100

// Config maps names to the files to serve.
type Config struct {
	// Secrets are the configured names.
	Secrets []Spec
	// Folders are those that the names file-cert:<chain>~<key> and file-root:<ca> may read
	// from; with any folder, file-root:system is allowed, too. Links that lead outside are
	// not followed. Default: such names are unknown.
	Folders []string
	// CredentialFolder is a SPIFFE credential folder, as in SPIFFE_CREDENTIAL_FOLDER: its
	// [CredentialBundle] is served as "default", the roots of that certificate's trust domain
	// as "ROOTCA", and each trust bundle as "spiffe://example.com". A trust bundle whose file is
	// removed or empty is unknown from then on. Default: none.
	CredentialFolder string
	// MaxNames bounds how many names that carry their paths, or that are of trust domains
	// without a file, are watched at a time. Default: 100.
	MaxNames int
	// SystemRoots are the files and folders with the system's roots. Default: the
	// well-known ones.
	SystemRoots []string

	// Debounce is how long to wait for more file changes after the first. Default: 100 ms.
	Debounce time.Duration
	// Poll is the interval at which to read all files, as some file systems report no
	// changes. Default: 10 s.
	Poll time.Duration
	// NoEvents disables file events and relies on Poll alone. Default: false.
	NoEvents bool

	// Observe receives events, for metrics; see [secret.Config]. An event shows only the
	// prefix of a name that carries its paths. Default: none.
	Observe func(secret.Event)
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
	// Log receives no key. Default: [slog.Default].
	Log *slog.Logger
}

// Spec is one secret and its PEM files: either Chain and Key, or Roots.
type Spec struct {
	Name       string
	Chain, Key string
	// Roots is a file of trust anchors, or [System].
	Roots string
}

func (s Spec) kind() secret.Kind {
	if s.Roots != "" {
		return secret.TrustBundle
	}
	return secret.KeyPair
}

func (s Spec) check() error {
	switch {
	case s.Name == "" || isDynamic(s.Name):
		return fmt.Errorf("a secret of files is named %q: give it a name that begins neither with %q nor %q", s.Name, certPrefix, rootPrefix)
	case s.Roots != "" && s.Chain+s.Key == "", s.Roots == "" && s.Chain != "" && s.Key != "":
		return nil
	}
	return fmt.Errorf("secret %q: name the files of its chain and its key, or the file of its roots", s.Name)
}

func (c Config) withDefaults() Config {
	c.MaxNames = cmp.Or(c.MaxNames, defaultMaxNames)
	if c.Observe == nil {
		c.Observe = func(secret.Event) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}
