package filesecret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// CredentialBundle is the file in a SPIFFE credential folder with the private key (PEM, PKCS #8)
// and, after it, the certificate chain (PEM, leaf first, never the root). The standard: SPIFFE
// Filesystem Delivery, section 2.
const CredentialBundle = "credential-bundle.private-key.pem"

// bundleSuffix ends the name of a trust domain's roots in such a folder.
const bundleSuffix = ".spiffe-trust-bundle.pem"

// TrustBundleFile returns the name of the file in a SPIFFE credential folder with the roots of a
// trust domain (PEM), such as "example.org.spiffe-trust-bundle.pem".
func TrustBundleFile(trustDomain string) string { return trustDomain + bundleSuffix }

// TrustDomainOf returns the trust domain of a file with the name that [TrustBundleFile] returns;
// ok is false for any other name, and for one that begins with a dot, as a writer's unfinished
// files do.
func TrustDomainOf(file string) (trustDomain string, ok bool) {
	trustDomain, ok = strings.CutSuffix(file, bundleSuffix)
	return trustDomain, ok && !strings.HasPrefix(file, ".") && pki.CheckTrustDomain(trustDomain) == nil
}

// The names under which a credential folder is served.
const (
	credentialName = "default"
	ownRootsName   = "ROOTCA"
	idPrefix       = "spiffe://"
)

// maxBundles bounds the trust bundles that are served from a credential folder.
const maxBundles = 1000

// addCredential adds the entries that every credential folder has.
func (s *Source) addCredential() error {
	folder := s.config.CredentialFolder
	if folder == "" {
		return nil
	}
	whole := filepath.Join(folder, CredentialBundle)
	roots := &entry{spec: Spec{Name: ownRootsName, Roots: folder}, own: true}
	roots.read = roots.readOwnRoots
	for _, e := range []*entry{{spec: Spec{Name: credentialName, Chain: whole, Key: whole}, read: readFile}, roots} {
		if s.entries[e.spec.Name] != nil {
			return fmt.Errorf("secret %q comes from the credential folder: remove it from the configured secrets", e.spec.Name)
		}
		s.entries[e.spec.Name] = e
	}
	return nil
}

// readOwnRoots reads the roots of the trust domain that the folder's certificate is of.
func (e *entry) readOwnRoots(folder string) ([]byte, error) {
	path := filepath.Join(folder, CredentialBundle)
	certs, err := readChain(Spec{Chain: path, Key: path}, readFile)
	if err != nil {
		return nil, err
	}
	identity, err := pki.IdentityOf(certs[0])
	if err == nil && identity.TrustDomain() == "" {
		err = errors.New("it has none")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: failed to read the certificate's SPIFFE ID, which selects the trust bundle: %w", path, err)
	}
	e.domain = identity.TrustDomain()
	return readFile(filepath.Join(folder, TrustBundleFile(e.domain)))
}

// disown withdraws the roots of a trust domain that the certificate is no longer of, if those of the
// present one cannot be read: they would verify its peers in their place.
func (s *Source) disown(e *entry) {
	s.mu.Lock()
	var tell []func()
	if e.held != nil && e.domain != e.heldDomain {
		e.held, tell = nil, e.watchers.All()
	}
	s.mu.Unlock()
	for _, notify := range tell {
		notify()
	}
}

// followFolder adds an entry for each trust bundle in the credential folder and withdraws those
// whose files are gone or empty: their trust domains are no longer federated (section 3.3). A
// folder that cannot be listed changes nothing.
func (s *Source) followFolder() {
	if s.config.CredentialFolder == "" {
		return
	}
	files, err := os.ReadDir(s.config.CredentialFolder)
	if err != nil {
		return // reading the files reports why
	}
	for _, notify := range s.setBundles(bundlesIn(files, s.config.CredentialFolder)) {
		notify()
	}
}

// bundlesIn returns the bundles among the files by the ID of their trust domain.
func bundlesIn(files []fs.DirEntry, folder string) map[string]string {
	found := map[string]string{}
	for _, file := range files {
		domain, ok := TrustDomainOf(file.Name())
		if path := filepath.Join(folder, file.Name()); ok && len(found) < maxBundles && !isVoid(path) {
			found[idPrefix+domain] = path
		}
	}
	return found
}

// isVoid reports whether a file has no content: the kubelet empties the file of an optional
// ClusterTrustBundle that no longer exists, and a link may lead nowhere.
func isVoid(path string) bool {
	info, err := safefile.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// setBundles makes the found bundles those that are served and returns the notices to send.
func (s *Source) setBundles(found map[string]string) (tell []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, path := range found {
		switch e := s.entries[name]; {
		case e == nil:
			s.entries[name] = &entry{spec: Spec{Name: name, Roots: path}, federated: true, read: readFile}
		case e.dynamic:
			s.dynamic--
			e.dynamic = false
		}
	}
	for name, e := range s.entries {
		if _, ok := found[name]; e.federated && !e.dynamic && !ok {
			tell = append(tell, s.withdraw(e)...)
		}
	}
	return tell
}

// withdraw has Peek answer that the name is unknown, until the file is back. The caller holds
// s.mu.
func (s *Source) withdraw(e *entry) []func() {
	if e.watchers.Len() == 0 {
		delete(s.entries, e.spec.Name)
		return nil
	}
	e.dynamic, e.held, e.failure, e.again = true, nil, nil, time.Time{}
	s.dynamic++
	return e.watchers.All()
}

// federatedSpec returns the Spec of a name such as "spiffe://example.com".
func (s *Source) federatedSpec(name string) (Spec, bool) {
	domain, ok := strings.CutPrefix(name, idPrefix)
	if !ok || s.config.CredentialFolder == "" || pki.CheckTrustDomain(domain) != nil {
		return Spec{}, false
	}
	return Spec{Name: name, Roots: filepath.Join(s.config.CredentialFolder, TrustBundleFile(domain))}, true
}

// Federated returns the trust domains whose bundles the credential folder has, its own among
// them, sorted; nil without a folder. The bundle of "example.com" is served as "spiffe://example.com".
func (s *Source) Federated() []string {
	if s.config.CredentialFolder == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []string{}
	for name, e := range s.entries {
		if e.federated && !e.dynamic {
			all = append(all, strings.TrimPrefix(name, idPrefix))
		}
	}
	slices.Sort(all)
	return all
}
