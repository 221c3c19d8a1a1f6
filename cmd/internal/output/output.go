// Package output writes secrets to files for programs that read them. [Run] keeps a set of
// files in sync with a [secret.Source] and reloads a program after each change; its
// goroutine owns all state.
package output

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/text"
)

// Content is what a file holds.
type Content string

// The contents. A keystore holds the key with its chain, a truststore the roots.
const (
	Chain       Content = "chain"             // PEM, leaf first
	Key         Content = "key"               // PEM, PKCS #8
	Roots       Content = "roots"             // PEM
	CRL         Content = "crl"               // PEM: the bundle's revocation lists; an error without any
	Combined    Content = "combined"          // PEM: the key, then the chain
	PKCS12      Content = "pkcs12"            // a keystore
	PKCS12Roots Content = "pkcs12-truststore" // for Java 8u301 and later
	JKSRoots    Content = "jks-truststore"
)

const (
	defaultKeyMode = 0o600
	defaultMode    = 0o644
)

// Contents lists all of them.
var Contents = []Content{Chain, Key, Roots, CRL, Combined, PKCS12, PKCS12Roots, JKSRoots}

// DefaultMode returns the mode of a file whose Mode is zero: 0600 with a key, else 0644.
func (c Content) DefaultMode() fs.FileMode {
	if c.holdsKey() {
		return defaultKeyMode
	}
	return defaultMode
}

// holdsKey reports whether the file contains the key.
func (c Content) holdsKey() bool { return c == Key || c == Combined || c == PKCS12 }

func (c Content) needsRoots() bool {
	return c == Roots || c == CRL || c == PKCS12Roots || c == JKSRoots
}

// File is one file of a set.
type File struct {
	Name    string // in the folder; not a path
	Content Content
	// Mode is the file's mode. Default: 0600 with a key, else 0644.
	Mode fs.FileMode

	domain string // the foreign trust domain whose roots it holds
}

// Config is one set of files and what to do after writing it.
type Config struct {
	Name string // the output's name, for logs and metrics
	// Pair and Bundle are the secrets to write. One that no file needs may be empty.
	Pair, Bundle string
	// Folder holds the files; if missing, it is created with mode 0755.
	Folder string
	Files  []File
	// Link makes updates atomic: each set goes into a new folder, and the symbolic link of
	// this name in Folder points to it. Prefer it. Default: the files are replaced one by
	// one in Folder, those with a key last; a program that reads in between finds a key and a
	// certificate that do not belong together.
	Link string
	// SPIFFE makes Folder a SPIFFE credential folder: one file with the key and its chain, and
	// one with the roots of each trust domain (SPIFFE Filesystem Delivery, section 2). Each is
	// replaced atomically. Files and Link must be empty.
	SPIFFE bool
	// Federated maps foreign trust domains, such as "example.com", to the names of their trust
	// bundles, for SPIFFE. The file of a trust domain that is not here is removed.
	Federated map[string]string
	// UID and GID own the files; nil means this process's.
	UID, GID *int
	// Password returns the password of keystores and truststores. Default: "changeit", as
	// in Java; the files' modes protect the key.
	Password func() (string, error)

	// Reload runs after the set was written; nil does nothing.
	Reload Reload
	// Pause is the minimum time between two reloads; changes in between share one.
	// Default: 1 s.
	Pause time.Duration

	// Observe receives events. It must not block. Default: none.
	Observe func(Event)
	// Log receives no key. Default: [slog.Default].
	Log *slog.Logger
}

// Reload makes a program read its changed files. It must return when ctx ends.
type Reload func(ctx context.Context, log *slog.Logger) error

// Event is an occurrence that a metric may count.
type Event struct {
	Output string
	Type   EventType
	// NotAfter is when what was Written expires; zero if it does not.
	NotAfter time.Time
	// Text is why it failed, with the last line of a command; bounded and escaped.
	Text string
	// NextTry is when a failed write or reload is tried again.
	NextTry time.Time
	// Partial is set if trust bundles in Federated are not held yet, and so not written.
	Partial bool
	// Due is set if the certificate was due for renewal when it was written.
	Due bool
}

// EventType names an event in one word that fits a metric label.
type EventType string

// The events.
const (
	Written      EventType = "written"
	WriteFailed  EventType = "write-failed"
	Reloaded     EventType = "reloaded"
	ReloadFailed EventType = "reload-failed"
)

// IstioFiles returns the files of Istio's layout.
func IstioFiles() []File {
	return []File{{Name: "root-cert.pem", Content: Roots}, {Name: "cert-chain.pem", Content: Chain}, {Name: "key.pem", Content: Key}}
}

// Check returns an error if the Config is invalid.
func (c Config) Check() error {
	if c.SPIFFE {
		return c.checkSPIFFE()
	}
	if c.Folder == "" || len(c.Files) == 0 {
		return errors.New("name a folder and at least one file")
	}
	if c.Link != "" && !isName(c.Link) {
		return fmt.Errorf("the link is %q: write a name without a folder", c.Link)
	}
	seen := map[string]bool{}
	for _, file := range c.Files {
		switch {
		case !isName(file.Name):
			return fmt.Errorf("a file is named %q: write a name without a folder, no leading '.'", file.Name)
		case seen[file.Name]:
			return fmt.Errorf("the file %q is there twice", file.Name)
		case !slices.Contains(Contents, file.Content):
			return fmt.Errorf("the file %q is to hold %q; chain, key, roots, crl, combined, pkcs12, pkcs12-truststore or jks-truststore is allowed", file.Name, file.Content)
		case file.Content.needsRoots() && c.Bundle == "", !file.Content.needsRoots() && c.Pair == "":
			return fmt.Errorf("the file %q: no secret is named for it", file.Name)
		case file.Mode&^fs.ModePerm != 0:
			return fmt.Errorf("the file %q has mode %o; permissions alone are allowed", file.Name, file.Mode)
		}
		seen[file.Name] = true
	}
	return nil
}

// isName reports whether name is a file name without a path. A leading dot is reserved for
// temporary files.
func isName(name string) bool {
	return name != "" && len(name) < 200 && !strings.HasPrefix(name, ".") && filepath.Base(name) == name && !strings.ContainsAny(name, "\\\x00\n")
}

func (c Config) withDefaults() Config {
	if c.Password == nil {
		c.Password = func() (string, error) { return "changeit", nil }
	}
	c.Pause = cmp.Or(c.Pause, time.Second)
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	c.Log = c.Log.With("output", c.Name)
	return c
}

// tellFailure reports an error, after which the next try comes after wait.
func (c Config) tellFailure(t EventType, err error, wait time.Duration) {
	said := text.Clean(err.Error())
	if failed, ok := errors.AsType[*command.FailedError](err); ok && failed.Said != "" {
		said += "; it said: " + failed.Said
	}
	c.Observe(Event{Output: c.Name, Type: t, Text: said, NextTry: time.Now().Add(wait)})
}
