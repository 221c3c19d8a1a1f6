package ra

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// Issuer decides and signs: an [*Engine], or something in front of one that keeps its promises.
type Issuer interface {
	Prepare(ctx context.Context, req Request) (*Order, error)
	Issue(ctx context.Context, o *Order) (Certificate, error)
	Refuse(ctx context.Context, req Request, err error)
}

// Certify is Prepare and Issue, for callers without checks of their own between them.
func Certify(ctx context.Context, issuer Issuer, req Request) (Certificate, error) {
	o, err := issuer.Prepare(ctx, req)
	if err != nil {
		return Certificate{}, err
	}
	return issuer.Issue(ctx, o)
}

// Order is a request that the policy grants, decided once. [Engine.Prepare] makes it, its door
// checks it, and [Engine.Issue] gets its certificate. It is for a call, and not to be kept while
// its request waits: Issue ends with [ca.Aborted] once the policy decides otherwise. Limit must
// not be called after Issue; all other methods are safe for concurrent use.
type Order struct {
	// Request is what was asked for. It must not be changed.
	Request

	engine   *Engine // which alone issues for it
	door     Door
	policy   *Policy
	decision Decision
	holder   holder
	subject  holder // whose budget bounds all holders that it can make; zero if it can make none

	csr      *x509.CertificateRequest
	pem      []byte       // the CSR, encoded anew: nothing beside it goes on
	names    pki.Identity // of the CSR
	namesErr error
	limit    time.Duration
	ttl      time.Duration
	tooShort error    // why ttl cannot be asked for
	repeats  holder   // who may repeat the order: a machine comes again with another token
	base     [16]byte // identifies equal orders
}

// Prepare decides what is granted for a verified subject, and reads the CSR. It spends nothing and
// asks no authority. An error is a [*ca.Error]: Denied and Invalid for which [Refused] is true
// are final, and the audit log has a line for them.
func (e *Engine) Prepare(ctx context.Context, req Request) (*Order, error) {
	o, err := e.prepare(req)
	if err == nil {
		return o, nil
	}
	ctx, span := trace.Begin(ctx, e.cfg.Tracer, "certificate.request")
	e.report(ctx, o, err)
	endRequest(span, o, Certificate{}, err)
	return nil, err
}

func (e *Engine) prepare(req Request) (o *Order, err error) {
	o = &Order{Request: req, engine: e, policy: e.policy.Load()}
	var known bool
	if o.door, known = e.doors.Load().by[req.Door]; !known {
		return o, ca.Errorf(ca.Invalid, "there is no door %.64q", req.Door)
	}
	if len(req.Object) > maxObject || req.TTL < 0 {
		return o, ca.Errorf(ca.Invalid, "the request's object has %d bytes, its lifetime is %s: use %d bytes at most, 0s at least", len(req.Object), req.TTL, maxObject)
	}
	o.decision = o.policy.Decide(req.Subject, req.Door)
	if o.decision.Denied != "" {
		return o, refuse(ca.Denied, errors.New(o.decision.Denied))
	}
	if err := o.readCSR(); err != nil {
		return o, refuse(ca.Invalid, err)
	}
	if o.decision, err = o.policy.grant(o); err != nil {
		return o, refuse(ca.Denied, err)
	}
	o.setHolder()
	o.setTTL()
	return o, o.tooShort
}

// grant decides about an order, the names that it asks for included.
func (p *Policy) grant(o *Order) (d Decision, err error) {
	r, _ := p.first(o.Subject, o.Door, false)
	if d = p.decide(r, o.Subject); d.Denied != "" {
		return d, errors.New(d.Denied)
	}
	if len(r.Names.Requested)+len(o.DNSNames) > 0 || o.NamesOfCSR {
		d.Identity, err = r.names.of(o.names, o.Subject).with(o.asks(d.Identity), o.Subject)
	}
	if err == nil && d.Identity.IsZero() {
		err = about{ErrNames, "the rule gives no name but those that are asked for, and none is"}
	}
	return d, err
}

// asks returns the names that are asked for. Those of the CSR that are given anyway are not.
func (o *Order) asks(given pki.Identity) further {
	asked := further{dns: slices.Clone(o.DNSNames)}
	if !o.NamesOfCSR {
		return asked
	}
	for _, name := range o.names.DNSNames {
		if !slices.Contains(given.DNSNames, name) {
			asked.dns = append(asked.dns, name)
		}
	}
	for _, address := range o.names.IPAddresses {
		if !slices.Contains(given.IPAddresses, address) {
			asked.ips = append(asked.ips, address.String())
		}
	}
	return asked
}

// Decision returns what the policy grants; the Identity has the names that were asked for, too.
func (o *Order) Decision() Decision { return o.decision }

// ParsedCSR returns the CSR, whose signature is verified, and the names in it, or why they cannot be
// read. It must not be changed.
func (o *Order) ParsedCSR() (csr *x509.CertificateRequest, names pki.Identity, err error) {
	return o.csr, o.names, o.namesErr
}

// Limit shortens the lifetime that is asked for, also below the least of the door. Issue refuses an
// order that is limited to zero or less.
func (o *Order) Limit(ttl time.Duration) {
	ttl = max(ttl, 1) // 0 means unlimited
	if o.limit == 0 || ttl < o.limit {
		o.limit = ttl
	}
	o.setTTL()
}

// Refuse records that a door refuses what the policy grants; see [Engine.Refuse].
func (o *Order) Refuse(ctx context.Context, err error) {
	o.engine.refused(ctx, o.Request, o.decision, err)
}

// readCSR verifies the CSR and takes its key.
func (o *Order) readCSR() (err error) {
	if len(o.CSR) > MaxCSR {
		return fmt.Errorf("the certificate signing request has more than %d bytes", MaxCSR)
	}
	if o.csr, err = pki.ParseCSR(o.CSR); err != nil {
		return err
	}
	if err = checkExtensions(o.csr); err != nil {
		return err
	}
	if err = o.decision.Usages.checkCSR(o.csr); err != nil {
		return err
	}
	o.names, o.namesErr = pki.IdentityOfCSR(o.csr)
	o.pem = pki.EncodeBlock("CERTIFICATE REQUEST", o.csr.Raw)
	return checkKey(o.csr.PublicKey, o.decision.KeyTypes, o.door.KeyTypes)
}

// nameless reports whether the CSR leaves the names to the request.
func (o *Order) nameless() bool {
	return o.namesErr != nil || !o.names.Equal(o.decision.Identity)
}

// odd reports whether the CSR has names that are not granted, or a subject of its own.
func (o *Order) odd() bool {
	return o.namesErr != nil || !o.names.IsZero() && o.nameless() || len(pki.SubjectValues(o.csr.Subject)) > 0
}

// setTTL chooses the lifetime to ask for: what the request, the rule and the door allow.
func (o *Order) setTTL() {
	o.ttl = o.decision.MaxTTL
	asked := o.TTL
	if asked > 0 {
		asked = max(asked, o.door.LeastTTL)
	}
	for _, limit := range []time.Duration{asked, o.door.MaxLifetime, o.limit} {
		if limit > 0 {
			o.ttl = min(o.ttl, limit)
		}
	}
	o.tooShort = o.checkTTL()
	o.seal()
}

// most returns the longest lifetime of a leaf, backdating included.
func (o *Order) most() time.Duration {
	if o.door.strict() {
		return o.ttl
	}
	return o.decision.MaxTTL
}

func (o *Order) checkTTL() error {
	least := max(o.door.MinLifetime, time.Second)
	if o.ttl >= least {
		return nil
	}
	err := fmt.Errorf("a lifetime of %s is granted, the door %q takes no less than %s", o.ttl, o.door.Name, least)
	if o.decision.MaxTTL < least {
		return ca.Errorf(ca.NotConfigured, "the rule %q has too short a longest lifetime: %w", o.decision.Rule, err) // who asked cannot help it
	}
	return refuse(ca.Denied, err)
}

// seal computes what identifies the order: of one holder, key and lifetime. Two rules
// may grant one subject the same names, from different authorities.
func (o *Order) seal() {
	names := digest(o.decision.Identity.Names()...)
	o.base = digest(
		o.Subject.Cluster, o.Object, string(o.csr.RawSubjectPublicKeyInfo), string(names[:]), o.ttl.String(),
		o.decision.Authority, o.decision.Rule, o.Door, string(o.repeats[:]),
	)
}

// sign returns the request to send, with an ID of that time. A repeat within repeatFor has the
// same ID.
func (o *Order) sign(of time.Time, ttl time.Duration, again string, token ca.Token) ca.SignRequest {
	names := o.decision.Identity
	r := ca.SignRequest{
		ID: requestID(string(o.base[:]), string(o.csr.Raw), ttl.String(), o.attempt(of), again), CSR: append([]byte(nil), o.pem...),
		DNSNames: append([]string(nil), names.DNSNames...), TTL: ttl, Token: token,
		Requester: o.Subject.String(),
	}
	r.IPAddresses = append(r.IPAddresses, names.IPAddresses...)
	if names.SPIFFEID != nil {
		r.SubjectID = names.SPIFFEID.String()
	}
	return r
}

// attempt counts from when the object was made; without one, by the clock.
func (o *Order) attempt(now time.Time) string {
	from := time.Unix(0, 0)
	if !o.Asked.IsZero() {
		from = o.Asked
	}
	return strconv.FormatInt(int64(now.Sub(from)/repeatFor), 10)
}
