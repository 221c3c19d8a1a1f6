package secret

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Kind is what a secret consists of.
type Kind int

// The kinds.
const (
	// KeyPair is a private key with the certificate chain for it.
	KeyPair Kind = iota + 1
	// TrustBundle is the set of roots that peers are verified with.
	TrustBundle
)

// String returns the kind as the configuration spells it.
func (k Kind) String() string {
	switch k {
	case KeyPair:
		return "key-pair"
	case TrustBundle:
		return "trust-bundle"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// Item is one version of a secret. All servers share it. It is immutable once a [Source]
// has returned it: a rotation makes a new Item.
//
// Printing, logging and JSON encoding never show the key.
type Item struct {
	Name string
	Kind Kind
	// Version identifies the content: items of one name have the same Version if and only
	// if their content is the same. It is opaque, short and does not reveal the key.
	Version string

	Chain []byte // PEM, leaf first, never the root; KeyPair only
	Key   []byte // PEM, PKCS #8 (RFC 5958); KeyPair only, nil if KeyHandle is set
	Roots []byte // PEM, at least one certificate; TrustBundle only

	// CRLs are the lists (PEM) of the certificates under Roots that are revoked, each
	// signed by a CA of the bundle; empty if revocation is not checked. Where there is one, a
	// peer whose CA has none that is current is refused. LeafCRLOnly checks only the leaf,
	// not the CAs above it. TrustBundle only; see package revocation.
	CRLs        []byte
	LeafCRLOnly bool

	// KeyHandle is the key if it cannot leave its device. Such an item works for callers
	// of [Item.PrivateKey], not for those that need the bytes.
	KeyHandle crypto.Signer

	// Identity, Serial (lower-case hex) and Fingerprint (lower-case hex SHA-256 of the
	// DER) are the leaf's; zero in a TrustBundle.
	Identity    pki.Identity
	Serial      string
	Fingerprint string
	// NotBefore and NotAfter are the leaf's; in a TrustBundle they span the validity of
	// its roots. RenewAt is when rotation begins, drawn once; zero if the item does not
	// rotate by time.
	NotBefore, NotAfter, RenewAt time.Time

	// Issued is when the agent began to serve the item. It may be later than NotBefore,
	// which authorities backdate.
	Issued time.Time

	// Authority is the configured name of the authority that the item came from.
	Authority string
	// Signer identifies who signed under that name, such as a provider with its version; bounded
	// and escaped, empty if unknown. KeyPair only.
	Signer string
	facts  ca.Facts // of the provider that signed
	// RootFingerprint is that of the root Chain leads to; KeyPair only.
	RootFingerprint string
	// RootFingerprints are those of Roots, sorted; TrustBundle only.
	RootFingerprints []string
}

// PrivateKey returns the key of a KeyPair: KeyHandle, or the parsed Key. It is ready to
// sign and safe for concurrent use. The error never quotes the key.
func (i *Item) PrivateKey() (crypto.Signer, error) {
	switch {
	case i.Kind != KeyPair:
		return nil, fmt.Errorf("secret %.256q is a %s and has no key", i.Name, i.Kind)
	case i.KeyHandle != nil:
		return i.KeyHandle, nil
	}
	return pki.ParseKey(i.Key)
}

// ErrNotExportable is the error for a request for the bytes of a key that cannot leave its
// device.
var ErrNotExportable = errors.New("its key does not leave the device that it is in, so that only crypto/tls in this process can use it")

// KeyPEM returns Key (PEM, PKCS #8), or an error that wraps ErrNotExportable.
func (i *Item) KeyPEM() ([]byte, error) {
	if i.KeyHandle != nil {
		return nil, fmt.Errorf("secret %.256q: %w", i.Name, ErrNotExportable)
	}
	return i.Key, nil
}

// Expired reports whether now is after NotAfter. A zero NotAfter never expires.
func (i *Item) Expired(now time.Time) bool {
	return !i.NotAfter.IsZero() && now.After(i.NotAfter)
}

// String returns a one-line summary without the key.
func (i Item) String() string {
	if i.Kind == TrustBundle {
		return fmt.Sprintf("%s %q (%d roots, version %s)", i.Kind, i.Name, len(i.RootFingerprints), i.Version)
	}
	return fmt.Sprintf("%s %q (%s, serial %s, until %s)", i.Kind, i.Name, i.Identity, i.Serial, clock.Stamp(i.NotAfter))
}

// GoString returns String, so that %#v does not show the key either.
func (i Item) GoString() string { return i.String() }

// Format writes String for every verb, so that no verb walks through the fields.
func (i Item) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, i.String()) }

// public holds the fields of an item that anybody may see.
type public struct {
	Name             string     `json:"name"`
	Kind             string     `json:"kind"`
	Version          string     `json:"version"`
	Identity         string     `json:"identity,omitempty"`
	Serial           string     `json:"serial,omitempty"`
	Fingerprint      string     `json:"fingerprint,omitempty"`
	Issued           *time.Time `json:"issued,omitempty"`
	NotBefore        *time.Time `json:"not_before,omitempty"`
	NotAfter         *time.Time `json:"not_after,omitempty"`
	RenewAt          *time.Time `json:"renew_at,omitempty"`
	Authority        string     `json:"authority,omitempty"`
	Signer           string     `json:"signer,omitempty"`
	RootFingerprint  string     `json:"root_fingerprint,omitempty"`
	RootFingerprints []string   `json:"root_fingerprints,omitempty"`
}

// MarshalJSON encodes the item without its key, chain and roots. Times are RFC 3339; zero
// fields are omitted.
func (i Item) MarshalJSON() ([]byte, error) {
	p := public{
		Name: i.Name, Kind: i.Kind.String(), Version: i.Version,
		Serial: i.Serial, Fingerprint: i.Fingerprint, Authority: i.Authority, Signer: i.Signer,
		Issued: orNil(i.Issued), NotBefore: orNil(i.NotBefore), NotAfter: orNil(i.NotAfter), RenewAt: orNil(i.RenewAt),
		RootFingerprint: i.RootFingerprint, RootFingerprints: i.RootFingerprints,
	}
	if !i.Identity.IsZero() {
		p.Identity = i.Identity.String()
	}
	return json.Marshal(p)
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// LogValue returns the fields that help an operator, without the key.
func (i Item) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("name", i.Name), slog.String("kind", i.Kind.String()), slog.String("version", i.Version),
	}
	if i.Kind == KeyPair {
		attrs = append(attrs, slog.String("identity", i.Identity.String()), slog.String("serial", i.Serial))
	}
	if !i.NotAfter.IsZero() {
		attrs = append(attrs, slog.Time("not_after", i.NotAfter))
	}
	return slog.GroupValue(attrs...)
}
