package ra

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// MaxCSR is the longest CSR that [Engine.Prepare] reads, in bytes of PEM. One with a key of RSA 8192
// has 3 kB.
const MaxCSR = 32 << 10

const (
	maxObject = 256
	// repeatFor is how long a repeat keeps its ID. An older certificate would be refused
	// by who checks when it began.
	repeatFor = 5 * time.Minute
	// oldest is how old a request can be.
	oldest = time.Hour
)

// Request asks for a certificate for a verified subject.
type Request struct {
	Subject Subject
	// Holder identifies the holder of the certificate among those that share Subject, such as the
	// token of one machine. The door has verified it. WithinSubject counts its certificates against
	// the budget of Subject as well ([Rule.Holders]): the subject may get any number of tokens.
	// Default: Subject is one holder.
	Holder        string
	WithinSubject bool
	// Door is the name of the door that it came through, one of [Config.Doors].
	Door string
	// CSR is one PKCS #10 request in PEM. It has the key, and proves possession of it;
	// the names in it grant nothing. If the rule allows another SPIFFE ID to be asked for
	// ([Names.Requested]) and the CSR has it, the certificate has it in place of the rule's.
	CSR []byte
	// DNSNames are asked for beside the names that the rule grants. The rule must allow each
	// ([Names.Requested]), or the request is Denied. The caller chose them, so only what is
	// verified of the subject speaks for them. Default: none.
	DNSNames []string
	// NamesOfCSR asks for the DNS names and IP addresses of the CSR as well, but for those that the
	// rule grants.
	NamesOfCSR bool
	// TTL is the lifetime asked for. Default, and most: the rule's.
	TTL time.Duration
	// Object identifies the request where the door has an object for it, such as its UID.
	// Asked is when that was made. With them, a repeat after a restart is known as one.
	Object string
	Asked  time.Time
}

// Certificate is what a caller gets. It must not be modified.
type Certificate struct {
	// Chain is PEM: the leaf first, then each certificate's issuer, never the root.
	Chain []byte
	// Roots are all roots to verify with, new ones and old ones included.
	Roots *pki.Bundle

	Identity            pki.Identity
	Serial              string // hexadecimal
	Fingerprint         string // of the leaf, SHA-256
	NotBefore, NotAfter time.Time
	Ends                time.Time // when the first certificate on the path ends

	Rule, Authority string
	RequestID       string
}

// Extensions that a CSR may ask for: key usage, names, basic constraints, extended key
// usage, subject key identifier. Some authorities copy what they are asked for.
var askable = []asn1.ObjectIdentifier{{2, 5, 29, 15}, {2, 5, 29, 17}, {2, 5, 29, 19}, {2, 5, 29, 37}, {2, 5, 29, 14}}

var oidNames = askable[1]

func checkExtensions(csr *x509.CertificateRequest) error {
	for _, extension := range csr.Extensions {
		known := false
		for _, id := range askable {
			known = known || extension.Id.Equal(id)
		}
		if !known {
			return fmt.Errorf("the certificate signing request asks for the extension %s, which is not granted", extension.Id)
		}
		if extension.Id.Equal(oidNames) {
			if err := checkNameForms(extension.Value); err != nil {
				return about{ErrNames, "the certificate signing request " + err.Error()}
			}
		}
	}
	return nil
}

// nameForms are the kinds of names that no rule can grant (RFC 5280, section 4.2.1.6).
var nameForms = map[int]string{0: "otherName", 1: "e-mail address", 3: "x400Address", 4: "directoryName", 5: "ediPartyName", 8: "registeredID"}

// checkNameForms refuses names of forms that x509 does not show, such as a user's principal
// name, or that no rule can grant.
func checkNameForms(extension []byte) error {
	var names []asn1.RawValue
	if rest, err := asn1.Unmarshal(extension, &names); err != nil || len(rest) > 0 {
		return errors.New("has malformed alternative names")
	}
	for _, name := range names {
		form, refused := nameForms[name.Tag]
		if refused || name.Class != asn1.ClassContextSpecific {
			return fmt.Errorf("names the %s; only SPIFFE IDs, DNS names and IP addresses can be granted", strings.TrimSpace(form+" "+shown(name)))
		}
	}
	return nil
}

// shown returns as much of a name as can be read.
func shown(name asn1.RawValue) string {
	var id asn1.ObjectIdentifier // the type of an otherName comes first
	_, err := asn1.Unmarshal(name.Bytes, &id)
	switch {
	case name.Tag == 1:
		return text.Quote(string(name.Bytes))
	case name.Tag == 0 && err == nil:
		return "of type " + id.String()
	}
	return ""
}

// firstAsk returns when the object was made, as far as that can be.
func (r Request) firstAsk(now time.Time) time.Time {
	if r.Asked.IsZero() || r.Asked.After(now) || r.Asked.Before(now.Add(-oldest)) {
		return now
	}
	return r.Asked
}
