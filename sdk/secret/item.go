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
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Kind is what a secret consists of.
type Kind int

// The kinds.
const (
	// KeyPair is a private key with the certificate chain for it.
	KeyPair Kind = iota + 1
	// TrustBundle is the roots that peers are verified with.
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

// Item is one version of a secret. It is shared by all who serve it and never
// changed once a [Source] has returned it: a rotation makes a new Item.
//
// However it is printed, logged or encoded as JSON, the key is not shown.
type Item struct {
	Name string
	Kind Kind
	// Version stands for the content: two items of one name with the same content
	// have the same Version, others differ. It is opaque, short and holds nothing
	// of the key.
	Version string

	Chain []byte // PEM, leaf first, never the root; KeyPair only
	Key   []byte // PEM, PKCS #8 (RFC 5958); KeyPair only, nil where KeyHandle has it
	Roots []byte // PEM, at least one certificate; TrustBundle only

	// KeyHandle is the key where it cannot leave the device that it is in: such an item
	// serves those who use [Item.PrivateKey], and nobody who needs the bytes.
	KeyHandle crypto.Signer

	// Identity, Serial (lower-case hex) and Fingerprint (lower-case hex SHA-256 of
	// the DER) are the leaf's; zero in a TrustBundle.
	Identity    pki.Identity
	Serial      string
	Fingerprint string
	// NotBefore and NotAfter are the leaf's; in a TrustBundle the time in which one
	// at least of its roots is valid. RenewAt is the moment drawn for the rotation; zero
	// where the item is not rotated by time.
	NotBefore, NotAfter, RenewAt time.Time

	// Issued is when the agent began to serve it: authorities date NotBefore back.
	Issued time.Time

	// Authority is the name of the provider that it came from, as configured.
	Authority string
	// Signer is who signed behind that name, such as a provider with its version,
	// bounded and escaped; empty where that is not told. KeyPair only.
	Signer string
	// RootFingerprint is the root that Chain leads to; KeyPair only.
	RootFingerprint string
	// RootFingerprints are those of Roots, sorted; TrustBundle only.
	RootFingerprints []string
}

// PrivateKey returns the key of a KeyPair, ready to sign and safe for concurrent
// use: KeyHandle, or what is in Key. The error never quotes the key.
func (i *Item) PrivateKey() (crypto.Signer, error) {
	switch {
	case i.Kind != KeyPair:
		return nil, fmt.Errorf("secret %.256q is a %s and has no key", i.Name, i.Kind)
	case i.KeyHandle != nil:
		return i.KeyHandle, nil
	}
	return pki.ParseKey(i.Key)
}

// ErrNotExportable is what is answered to who asks for the bytes of a key that does not
// leave the device that it is in.
var ErrNotExportable = errors.New("its key does not leave the device that it is in, so that only crypto/tls in this process can use it")

// KeyPEM returns Key, or an error that is ErrNotExportable.
func (i *Item) KeyPEM() ([]byte, error) {
	if i.KeyHandle != nil {
		return nil, fmt.Errorf("secret %.256q: %w", i.Name, ErrNotExportable)
	}
	return i.Key, nil
}

// Expired tells whether the item's time is over at now.
func (i *Item) Expired(now time.Time) bool {
	return !i.NotAfter.IsZero() && now.After(i.NotAfter)
}

// String returns one line about the item, without its key.
func (i Item) String() string {
	if i.Kind == TrustBundle {
		return fmt.Sprintf("%s %q (%d roots, version %s)", i.Kind, i.Name, len(i.RootFingerprints), i.Version)
	}
	return fmt.Sprintf("%s %q (%s, serial %s, until %s)", i.Kind, i.Name, i.Identity, i.Serial, clock.Stamp(i.NotAfter))
}

// GoString returns String: %#v must not show the key either.
func (i Item) GoString() string { return i.String() }

// Format writes String for every verb, so that no verb walks through the fields.
func (i Item) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, i.String()) }

// public is what of an item may be seen by anybody.
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

// MarshalJSON returns the item without its key, chain and roots: times as RFC 3339,
// what is zero left out.
func (i Item) MarshalJSON() ([]byte, error) {
	p := public{
		Name: i.Name, Kind: i.Kind.String(), Version: i.Version,
		Serial: i.Serial, Fingerprint: i.Fingerprint, Authority: i.Authority, Signer: i.Signer,
		Issued: known(i.Issued), NotBefore: known(i.NotBefore), NotAfter: known(i.NotAfter), RenewAt: known(i.RenewAt),
		RootFingerprint: i.RootFingerprint, RootFingerprints: i.RootFingerprints,
	}
	if !i.Identity.IsZero() {
		p.Identity = i.Identity.String()
	}
	return json.Marshal(p)
}

func known(t time.Time) *time.Time {
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
