package ra

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// maxCSR bounds a CSR in bytes of PEM. One with a key of RSA 8192 has 3 kB.
	maxCSR    = 32 << 10
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
	// Door is the name of the door that it came through, one of [Config.Doors].
	Door string
	// CSR is one PKCS #10 request in PEM. It tells the key, and proves possession of it;
	// the names in it grant nothing.
	CSR []byte
	// DNSNames are asked for beside the names that the rule grants. The rule must allow each
	// ([Names.Requested]), or the request is Denied. Whoever asks chose them, so only what is
	// verified of the subject speaks for them. Default: none.
	DNSNames []string
	// TTL is the lifetime asked for. Default, and most: the rule's.
	TTL time.Duration
	// Object identifies the request where the door has an object for it, such as its UID.
	// Asked is when that was made. With them, a repeat after a restart is known as one.
	Object string
	Asked  time.Time
}

// Certificate is what a caller gets. Nobody may modify it.
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

// order is a request that the policy grants.
type order struct {
	Request
	door     Door
	policy   *Policy
	decision Decision
	holder   holder

	csr  *x509.CertificateRequest
	pem  []byte // the CSR, encoded anew: nothing beside it goes on
	odd  bool   // the CSR has names that are not granted, or a subject of its own
	ttl  time.Duration
	base [16]byte // tells equal orders from others
}

// readCSR verifies the CSR and takes its key.
func (o *order) readCSR() (err error) {
	if len(o.CSR) > maxCSR {
		return fmt.Errorf("the certificate signing request has %d bytes, %d are allowed", len(o.CSR), maxCSR)
	}
	if o.csr, err = pki.ParseCSR(o.CSR); err != nil {
		return err
	}
	if err = checkExtensions(o.csr); err != nil {
		return err
	}
	if err = o.decision.Usages.CheckCSR(o.csr); err != nil {
		return err
	}
	names, err := pki.IdentityOfCSR(o.csr)
	o.odd = err != nil || !names.IsZero() && !names.Equal(o.decision.Identity) || len(pki.SubjectValues(o.csr.Subject)) > 0
	o.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: o.csr.Raw})
	return checkKey(o.csr.PublicKey, o.decision.KeyTypes, o.door.KeyTypes)
}

// nameless reports whether the CSR leaves the names to the request.
func (o *order) nameless() bool {
	names, err := pki.IdentityOfCSR(o.csr)
	return err != nil || !names.Equal(o.decision.Identity)
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
				return fmt.Errorf("the certificate signing request %w", err)
			}
		}
	}
	return nil
}

// checkNameForms refuses names of forms that x509 does not show, such as a user's principal
// name (RFC 5280, section 4.2.1.6).
func checkNameForms(extension []byte) error {
	var names []asn1.RawValue
	if rest, err := asn1.Unmarshal(extension, &names); err != nil || len(rest) > 0 {
		return errors.New("has malformed alternative names")
	}
	for _, name := range names {
		if name.Class != asn1.ClassContextSpecific || name.Tag != 2 && name.Tag != 6 && name.Tag != 7 {
			return errors.New("names something other than DNS names, URIs and IP addresses")
		}
	}
	return nil
}

// setTTL chooses the lifetime to ask for: what the request, the rule and the door allow.
func (o *order) setTTL() error {
	o.ttl = o.decision.MaxTTL
	for _, limit := range []time.Duration{o.TTL, o.door.MaxLifetime} {
		if limit > 0 {
			o.ttl = min(o.ttl, limit)
		}
	}
	if o.ttl >= o.door.MinLifetime {
		return nil
	}
	err := fmt.Errorf("a lifetime of %s is granted, the door %q takes no less than %s", o.ttl, o.door.Name, o.door.MinLifetime)
	if o.decision.MaxTTL < o.door.MinLifetime {
		return ca.Errorf(ca.NotConfigured, "the rule %q has too short a longest lifetime: %w", o.decision.Rule, err) // who asked cannot help it
	}
	return refuse(ca.Denied, err)
}

// seal computes what tells the order from others: of one holder, key and lifetime. Two rules
// may grant one subject the same names, from different authorities.
func (o *order) seal() {
	names := digest(o.decision.Identity.Names()...)
	o.base = digest(
		o.Subject.Cluster, o.Object, string(o.csr.RawSubjectPublicKeyInfo), string(names[:]), o.ttl.String(),
		o.decision.Authority, o.decision.Rule, o.Door, string(o.holder[:]),
	)
}

// sign returns the request to send, with an ID of that time. A repeat within repeatFor has the
// same ID.
func (o *order) sign(of time.Time, ttl time.Duration, again string, token ca.Token) ca.SignRequest {
	names := o.decision.Identity
	r := ca.SignRequest{
		ID: requestID(string(o.base[:]), string(o.csr.Raw), ttl.String(), o.attempt(of), again), CSR: append([]byte(nil), o.pem...),
		DNSNames: append([]string(nil), names.DNSNames...), TTL: ttl, Token: token,
	}
	r.IPAddresses = append(r.IPAddresses, names.IPAddresses...)
	if names.SPIFFEID != nil {
		r.SubjectID = names.SPIFFEID.String()
	}
	return r
}

// attempt counts from when the object was made; without one, by the clock.
func (o *order) attempt(now time.Time) string {
	from := time.Unix(0, 0)
	if !o.Asked.IsZero() {
		from = o.Asked
	}
	return strconv.FormatInt(int64(now.Sub(from)/repeatFor), 10)
}

// firstAsk returns when the object was made, as far as that can be.
func (r Request) firstAsk(now time.Time) time.Time {
	if r.Asked.IsZero() || r.Asked.After(now) || r.Asked.Before(now.Add(-oldest)) {
		return now
	}
	return r.Asked
}
