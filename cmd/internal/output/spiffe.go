package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// checkSPIFFE is Check for a SPIFFE credential folder.
func (c Config) checkSPIFFE() error {
	switch {
	case c.Folder == "":
		return errors.New("name a folder")
	case len(c.Files) > 0 || c.Link != "":
		return errors.New("a SPIFFE credential folder has files of its own: name neither files nor a link")
	case c.Pair == "" || c.Bundle == "":
		return errors.New("a SPIFFE credential folder needs a key pair and a trust bundle")
	}
	return nil
}

// filesOf returns the files of a set. Those of a SPIFFE credential folder depend on its trust
// domains (SPIFFE Filesystem Delivery, section 2).
func (w *writer) filesOf(s set) ([]File, error) {
	if !w.SPIFFE {
		return w.Files, nil
	}
	own := s.pair.Identity.TrustDomain()
	if own == "" {
		return nil, fmt.Errorf("the certificate of %.256q has no SPIFFE ID, which a credential folder needs", s.pair.Name)
	}
	files := []File{
		{Name: filesecret.CredentialBundle, Content: Combined},
		{Name: filesecret.TrustBundleFile(own), Content: Roots},
	}
	for domain, item := range s.foreign {
		if item != nil && domain != own {
			files = append(files, File{Name: filesecret.TrustBundleFile(domain), Content: Roots, domain: domain})
		}
	}
	return files, nil
}

// peekForeign returns the bundles of foreign trust domains, without those that the source does
// not know. One that is not ready is nil, and its file stays as an earlier run wrote it.
func (w *writer) peekForeign() map[string]*secret.Item {
	all := map[string]*secret.Item{}
	for domain, name := range w.Federated {
		item, err := w.source.Peek(secret.Caller{}, name)
		switch {
		case err == nil:
			all[domain] = item
		case !errors.Is(err, secret.ErrUnknown):
			all[domain] = nil
		}
	}
	return all
}

// sweepDomains removes the bundles of trust domains that are no longer federated.
func (w *writer) sweepDomains(folder *os.Root, s set) error {
	if !w.SPIFFE {
		return nil
	}
	found, err := fs.ReadDir(folder.FS(), ".")
	if err != nil {
		return err
	}
	for _, file := range found {
		domain, ok := filesecret.TrustDomainOf(file.Name())
		if _, federated := s.foreign[domain]; !ok || federated || domain == s.pair.Identity.TrustDomain() {
			continue
		}
		if err := folder.Remove(file.Name()); err != nil {
			return err
		}
		w.Log.Info("trust bundle removed, its trust domain is no longer federated", "folder", w.Folder, "trust_domain", domain)
	}
	return nil
}

// warnOfDisk warns once per start if keys reach a disk.
func (w *writer) warnOfDisk() {
	if w.SPIFFE && w.written.empty() && onDisk(w.Folder) {
		w.Log.Warn("SPIFFE credential folder is on a disk, which keeps keys and may be in backups; use a folder in memory, such as one below /run", "folder", w.Folder)
	}
}
