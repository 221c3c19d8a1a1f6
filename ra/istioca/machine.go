package istioca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
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
	begun, err := in.present(bounded, chains.ID(pki.Fingerprint(leaf)), id.SPIFFEID)
	if begun.Identity != "" {
		who.Subject = begun.Subject
		who.Verified = how + "; " + begun.Subject.Verified + " at " + clock.Stamp(begun.Began)
	}
	switch {
	case ctx.Err() != nil:
		return who, s.goneOrEnding(ctx)
	case err != nil:
		return who, unrenewed(err).of(who)
	case begun.Full(clock.Wall()):
		return who, unrenewed(chains.ErrFull).of(who)
	case !in.vouched(begun):
		return who, denied("the issuer that enrolled this machine is no longer accepted").of(who)
	}
	who.presented = &presented{chains.ID(pki.Fingerprint(leaf)), begun.ID, c.Chain, begun.Began, begun.Last}
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

// present enters that a certificate was presented, and returns its chain as it is then.
func (in *callers) present(ctx context.Context, certificate, identity string) (of chains.Chain, err error) {
	err = in.ledger.change(ctx, func(r *chains.Record) error {
		c, err := r.Present(certificate)
		if c != nil {
			of = *c
		}
		if err == nil && c.Identity != identity {
			return chains.ErrUnknown
		}
		return err
	})
	return of, err
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

// room fails if the renewal record cannot take another chain, so that no certificate is issued in
// vain.
func (s *Server) room(ctx context.Context, who caller, a asked, o *ra.Order) *fault {
	in := s.callers.Load()
	id := o.Decision().Identity.SPIFFEID
	if id == nil || !in.begins(who, a, id.String()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.Lookup)
	defer cancel()
	err := in.ledger.change(ctx, func(r *chains.Record) error { return r.Room(who.begun(id.String()), clock.Wall()) })
	if err != nil {
		return unrenewed(err)
	}
	return nil
}

// enter writes down a certificate before it is given out, if it may be renewed without a token.
func (s *Server) enter(ctx context.Context, who caller, a asked, cert ra.Certificate) *fault {
	in := s.callers.Load()
	if !in.Renewals.on() || cert.Identity.SPIFFEID == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.Lookup)
	defer cancel()
	id := cert.Identity.SPIFFEID.String()
	next := chains.Certificate{ID: chains.ID(cert.Fingerprint), Ends: cert.NotAfter}
	var err error
	switch {
	case who.presented != nil:
		err = in.continues(ctx, who.presented, id, next)
	case !in.begins(who, a, id):
		return nil
	default:
		err = in.ledger.change(ctx, func(r *chains.Record) error { return r.Begin(who.begun(id), next, clock.Wall()) })
	}
	if err != nil {
		return unrenewed(err)
	}
	return nil
}

// continues enters the successor of a certificate that was presented. One that lasts longer than
// its chain ends the chain: another would cost as much, and help as little.
func (in *callers) continues(ctx context.Context, p *presented, identity string, next chains.Certificate) error {
	return in.ledger.change(ctx, func(r *chains.Record) error {
		c, err := r.Present(p.id)
		switch {
		case err != nil:
			return err
		case c.Identity != identity:
			return chains.ErrUnknown
		case next.Ends.After(p.until(in.Renewals).Add(pki.MaxClockSkew)):
			c.Over = chains.Outlives
			return chains.ErrOutlives
		}
		return r.Continue(c, next, clock.Wall())
	})
}

// unrenewed is the fault of a machine whose certificate the record does not let it renew.
func unrenewed(err error) *fault {
	switch {
	case errors.Is(err, chains.ErrFull):
		return faultf(OverOwnLimit, codes.ResourceExhausted, "too many certificates of this machine or identity have not expired yet; retry later").because(err)
	case errors.Is(err, chains.ErrUnknown):
		return denied("no token began the renewals of this certificate, as far as this server knows; present a token")
	case errors.Is(err, chains.ErrCopied):
		f := denied("superseded certificate presented: possible copy; both are blocked from renewal; present a token")
		f.result = Copied
		return f
	case errors.Is(err, chains.ErrOutlives):
		return denied("the certificate authority's certificates last longer than renewals without a token may go on; present a token")
	}
	return faultf(CannotVerify, codes.Unavailable, "the record of renewals cannot be reached at the moment; retry later").because(err)
}
