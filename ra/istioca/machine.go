package istioca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca/internal/chains"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// presented is a client certificate that continues a chain of renewals.
type presented struct {
	id, of      string              // the certificate, and its chain
	chain       []*x509.Certificate // as the handshake has it, leaf first
	began, last time.Time
}

// machine returns the caller that presents a client certificate and no token: the identity
// established by the token that started the certificate's chain.
func (s *Server) machine(ctx, bounded context.Context, c authn.Credential) (caller, *fault) {
	in := s.callers.Load()
	id, err := in.Renewals.verify(bounded, c.Chain, in.Renewals.Authorities...)
	if err != nil {
		return caller{}, s.stranger(ctx, err, "")
	}
	leaf := c.Chain[0]
	how := fmt.Sprintf("client certificate, serial %.64s", leaf.SerialNumber.Text(16))
	who := caller{kind: authn.ByCertificate, Subject: ra.Subject{Kind: ra.User, User: id.SPIFFEID, Verified: how}}
	if !in.Renewals.lists(id.SPIFFEID) {
		return who, denied("certificates of this identity are not renewed without a token").of(who)
	}
	certificate := chains.ID(pki.Fingerprint(leaf))
	begun, err := in.find(bounded, certificate, id.SPIFFEID)
	if begun.Identity != "" {
		who.Subject = begun.Subject
		who.Verified = how + "; " + begun.Subject.Verified + " at " + clock.Stamp(begun.Began)
	}
	switch {
	case ctx.Err() != nil:
		return who, s.goneOrEnding(ctx)
	case err != nil:
		return who, unrenewed(err).of(who)
	case !in.vouched(begun):
		return who, denied("the issuer that enrolled this machine is no longer accepted").of(who)
	}
	who.presented = &presented{certificate, begun.ID, c.Chain, begun.Began, begun.Last}
	return who, nil
}

// verify checks a chain against the roots of authorities. One whose roots are not known yet may
// be the one.
func (r Renewals) verify(ctx context.Context, chain []*x509.Certificate, authorities ...string) (authn.Identity, error) {
	roots, missing := pki.NewBundle(), ""
	for _, name := range authorities {
		known := r.Roots(name)
		if known.Len() == 0 {
			missing = name
			continue
		}
		roots = roots.Union(known)
	}
	with := authn.Certificates{Roots: func(string) *pki.Bundle { return roots }}
	id, err := with.Authenticate(ctx, authn.Credential{Chain: chain})
	if err != nil && missing != "" {
		return id, authn.Errorf(authn.ErrUnavailable, "the roots of the authority %.64q are not known yet: %w", missing, err)
	}
	return id, err
}

// find returns the chain that a certificate may continue. It notes a copy in the record, and nothing
// else: a certificate counts as presented once it has obtained another.
func (in *callers) find(ctx context.Context, certificate, identity string) (of chains.Chain, err error) {
	o := in.ledger.of(identity)
	record, err := o.look(ctx, func(r *chains.Record) bool {
		_, err := r.Find(certificate)
		return !errors.Is(err, chains.ErrUnknown)
	})
	if err != nil {
		return of, err
	}
	c, err := record.Find(certificate)
	if c == nil || c.Identity != identity {
		return of, chains.ErrUnknown
	}
	if errors.Is(err, chains.ErrCopied) && c.Over == "" {
		err = o.change(ctx, func(r *chains.Record) error {
			_, err := r.Present(certificate)
			return err
		})
	}
	return *c, err
}

// vouched reports whether a token of who began a chain would still be taken.
func (in *callers) vouched(c chains.Chain) bool {
	if c.Issuer != "" {
		return in.IssuerClusters[c.Issuer] == c.Subject.Cluster
	}
	return in.Renewals.Reviewed(c.Subject.Cluster)
}

// mayRenew returns why a machine may not renew what it presents, and shortens the lifetime asked
// for to the bound of its chain.
func (s *Server) mayRenew(o *ra.Order, who caller) *fault {
	in, p := s.callers.Load(), who.presented
	granted := o.Decision()
	leaf := p.chain[0]
	if names, err := pki.IdentityOf(leaf); err != nil || !names.Equal(granted.Identity) {
		return denied("the policy gives the machine %.100q, and its certificate is for %.100q", granted.Identity.String(), names.String())
	}
	switch _, err := in.Renewals.verify(context.Background(), p.chain, granted.Authority); {
	case errors.Is(err, authn.ErrUnavailable):
		return faultf(CannotVerify, codes.Unavailable, unsureCaller).because(err)
	case err != nil:
		return denied("the certificate is not of the authority that signs for the machine now; present a token").because(err)
	}
	now, until, margin := clock.Wall(), p.until(in.Renewals), in.Renewals.margin()
	switch {
	case now.Before(p.last.Add(-pki.MaxClockSkew)):
		return faultf(CannotVerify, codes.Unavailable, unsureCaller).because(errors.New("the clock is behind the record of renewals"))
	case now.After(until.Add(-margin)), leaf.NotAfter.After(until.Add(-margin)):
		return denied("renewal without a token is over for this machine (limit %s); present a token", clock.Stamp(until))
	}
	o.Limit(until.Sub(now).Truncate(time.Second))
	return nil
}

// until is the end of all renewals.
func (p *presented) until(r Renewals) time.Time { return p.began.Add(r.Longest) }

// begins reports whether a certificate for a SPIFFE ID begins a chain of renewals.
func (in *callers) begins(who caller, a asked, id string) bool {
	return who.presented == nil && who.podless && a.impersonated == "" && in.Renewals.lists(id)
}

// begun is the chain that a caller's token begins.
func (c caller) begun(identity string) chains.Chain {
	return chains.Chain{Subject: c.Subject, Issuer: c.issuer, Identity: identity}
}

// entry is what a certificate changes in the record of renewals: it begins a chain, or continues one.
type entry struct {
	object *object
	token  bool // it begins a chain
	// may returns why the record would not take the certificate.
	may func(r *chains.Record) error
	// enter takes it.
	enter func(r *chains.Record, next chains.Certificate) error
}

// entry returns that of a certificate, or false if it cannot be renewed without a token.
func (s *Server) entry(who caller, a asked, identity *url.URL) (entry, bool) {
	in := s.callers.Load()
	if identity == nil || !in.Renewals.on() {
		return entry{}, false
	}
	id := identity.String()
	e := entry{object: in.ledger.of(id)}
	if p := who.presented; p != nil {
		limit := p.until(in.Renewals).Add(pki.MaxClockSkew)
		e.may = func(r *chains.Record) error {
			c, err := r.Find(p.id)
			if err != nil {
				return err
			}
			return r.MayContinue(c, clock.Wall())
		}
		e.enter = func(r *chains.Record, next chains.Certificate) error {
			return r.Continue(p.id, next, limit, clock.Wall())
		}
		return e, true
	}
	begun := who.begun(id)
	e.token = true
	e.may = func(r *chains.Record) error { return r.MayBegin(begun, clock.Wall()) }
	e.enter = func(r *chains.Record, next chains.Certificate) error { return r.Begin(begun, next, clock.Wall()) }
	return e, in.begins(who, a, id)
}

// room fails if the record cannot take the certificate, so that none is issued in vain. A token gets
// one also if the record is full.
func (s *Server) room(ctx context.Context, who caller, a asked, o *ra.Order) *fault {
	e, renewed := s.entry(who, a, o.Decision().Identity.SPIFFEID)
	if !renewed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.Lookup)
	defer cancel()
	record, err := e.object.look(ctx, func(*chains.Record) bool { return true })
	if err == nil {
		err = e.may(record)
	}
	if err == nil || e.token && errors.Is(err, chains.ErrFull) {
		return nil
	}
	return unrenewed(err)
}

// enter writes down a certificate before it is given out, if it may be renewed without a token. That of
// a token is given out also if the record is full: full is why it will not be renewed then.
func (s *Server) enter(ctx context.Context, who caller, a asked, cert ra.Certificate) (f *fault, full error) {
	e, renewed := s.entry(who, a, cert.Identity.SPIFFEID)
	if !renewed {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.Lookup)
	defer cancel()
	next := chains.Certificate{ID: chains.ID(cert.Fingerprint), Begins: cert.NotBefore, Ends: cert.NotAfter}
	err := e.object.change(ctx, func(r *chains.Record) error { return e.enter(r, next) })
	switch {
	case err == nil:
		return nil, nil
	case e.token && errors.Is(err, chains.ErrFull):
		return nil, err
	}
	return unrenewed(err), nil
}

// unrenewed is the fault of a machine whose certificate the record does not let it renew.
func unrenewed(err error) *fault {
	switch {
	case errors.Is(err, chains.ErrFull):
		return faultf(OverOwnLimit, codes.ResourceExhausted, "too many certificates of this machine or identity have not expired yet; retry later").because(err)
	case errors.Is(err, chains.ErrUnknown):
		return denied("no token began the renewals of this certificate, as far as is recorded; present a token")
	case errors.Is(err, chains.ErrCopied):
		f := denied("superseded certificate presented: possible copy; both are blocked from renewal; present a token")
		f.result = Copied
		return f
	case errors.Is(err, chains.ErrOutlives):
		return denied("the certificate authority's certificates last longer than renewals without a token may go on; present a token")
	}
	return faultf(CannotVerify, codes.Unavailable, "the record of renewals cannot be reached at the moment; retry later").because(err)
}
