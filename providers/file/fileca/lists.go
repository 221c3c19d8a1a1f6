package fileca

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// Optional files of the folder. Both are read for each answer.
const (
	listFile    = "crl.pem"     // lists that the operator made
	revokedFile = "revoked.txt" // serial numbers
)

const (
	listLife   = 24 * time.Hour // of a list that is made here
	maxRevoked = 20_000         // an entry takes up to 50 bytes of a list, which has 3 MiB at most
	maxSerial  = 20             // bytes (RFC 5280, section 4.1.2.2)
)

// ownList is the list that this process signed last.
type ownList struct {
	mu      sync.Mutex
	by      *authority
	revoked []byte // the file that it was made from
	made    time.Time
	list    *x509.RevocationList
}

// Revocations implements [ca.RevocationSource]. It returns the lists of crl.pem, one that it makes
// of the serial numbers in revoked.txt unless crl.pem has the CA's own, and the CAs between
// the root and the leaves. Without these files nothing is revoked. A CA that may not sign lists
// and has none there is [ca.Unimplemented].
func (c *CA) Revocations(context.Context) ([]byte, error) {
	a := c.current.Load().authority
	lists, issuers, err := c.readLists()
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(lists, func(list *x509.RevocationList) bool { return pki.SignedCRL(list, a.cert) }) {
		own, err := c.signedList(a)
		if err != nil {
			return nil, err
		}
		lists = append(lists, own)
	}
	cas := pki.NewBundle(append(issuers, a.above...)...)
	return append(pki.EncodeCRLs(lists), cas.PEM()...), nil
}

// readLists returns what the operator's file holds, if it is there.
func (c *CA) readLists() ([]*x509.RevocationList, []*x509.Certificate, error) {
	text, err := c.optional(listFile)
	if err != nil || text == nil {
		return nil, nil, err
	}
	lists, issuers, err := pki.ParseCRLs(text)
	if err != nil {
		return nil, nil, ca.Errorf(ca.Unavailable, "%s: it %w", filepath.Join(c.dir, listFile), err)
	}
	return lists, issuers, nil
}

// optional returns nil if the file is not there.
func (c *CA) optional(name string) ([]byte, error) {
	text, err := setting.File(filepath.Join(c.dir, name)).Read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, ca.Errorf(ca.Unavailable, "%w", err)
	}
	return append([]byte{}, text...), nil // not nil
}

// signedList signs another list when what is revoked changes, the CA does, or half its life is
// over: each goes to every workload.
func (c *CA) signedList(a *authority) (*x509.RevocationList, error) {
	text, err := c.optional(revokedFile)
	if err != nil {
		return nil, err
	}
	now := c.now()
	own := &c.own
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.list != nil && own.by == a && bytes.Equal(own.revoked, text) && !now.Before(own.made) && now.Before(own.made.Add(listLife/2)) {
		return own.list, nil
	}
	entries, err := parseRevoked(text, now)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "%s: %w", filepath.Join(c.dir, revokedFile), err)
	}
	list, err := a.list(entries, now)
	if err != nil {
		return nil, err
	}
	own.by, own.revoked, own.made, own.list = a, text, now, list
	return list, nil
}

// list signs a revocation list. Its number is the time in milliseconds, which goes up over restarts
// without a file of its own.
func (a *authority) list(entries []x509.RevocationListEntry, now time.Time) (*x509.RevocationList, error) {
	if a.cert.KeyUsage != 0 && a.cert.KeyUsage&x509.KeyUsageCRLSign == 0 {
		return nil, ca.Errorf(ca.Unimplemented, "%s may not sign revocation lists (key usage cRLSign), and %s has none of that CA", certFile, listFile)
	}
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(now.UnixMilli()), ThisUpdate: now.Add(-backdate), NextUpdate: now.Add(listLife), RevokedCertificateEntries: entries,
	}, a.cert, a.key)
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "sign a revocation list: %w", err)
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "%w", err)
	}
	return list, nil
}

// parseRevoked reads serial numbers in hexadecimal, one a line, with or without colons. What follows
// # is a comment. A line that cannot be read is an error: who wrote it means to revoke something.
func parseRevoked(text []byte, now time.Time) ([]x509.RevocationListEntry, error) {
	var entries []x509.RevocationListEntry
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line, _, _ = strings.Cut(line, "#")
		digits := strings.ReplaceAll(strings.TrimSpace(line), ":", "")
		if digits == "" {
			continue
		}
		serial, ok := new(big.Int).SetString(digits, 16)
		if len(digits) > 2*maxSerial+1 || !ok || serial.Sign() <= 0 { // some write one zero more
			return nil, fmt.Errorf("line %d is not a serial number in hexadecimal", n)
		}
		if len(entries) == maxRevoked {
			return nil, fmt.Errorf("it has more than %d serial numbers", maxRevoked)
		}
		entries = append(entries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: now})
	}
	return entries, nil
}
