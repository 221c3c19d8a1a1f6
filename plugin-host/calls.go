package pluginhost

import (
	"bytes"
	"context"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// Client calls a provider under one entry, through all restarts. It has the abilities of a
// [Provider], is comparable with == and safe for concurrent use. Before its entry is in force,
// calls wait; once another is, they fail. Calls wait until the provider is ready, up to the caller's
// deadline or [Options.CallTimeout]; those of an ability that it lacks return
// [ca.ErrUnimplemented].
type Client struct {
	s    *Provider
	plan *Plan // nil: the one in force
}

// calls are the abilities of a provider.
type calls = Client

var (
	_ ca.Client           = Client{}
	_ ca.RootSource       = Client{}
	_ ca.RootWatcher      = Client{}
	_ ca.TokenExchanger   = Client{}
	_ ca.NameCertifier    = Client{}
	_ ca.RenewalAdvisor   = Client{}
	_ ca.RevocationSource = Client{}
	_ ca.JWTSigner        = Client{}
	_ ca.WITSigner        = Client{}
)

func (c Client) wait(ctx context.Context) (*life, error) { return c.s.gate.wait(ctx, c.plan) }

// CSRSign implements [ca.Client].
func (c Client) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return call(ctx, c, "CSRSign", c.need, func(ctx context.Context, l *life) (ca.Certificate, error) {
		if err := c.needsToken(l, req.Token); err != nil {
			return ca.Certificate{}, err
		}
		answered := c.s.suspect(l)
		defer answered()
		cert, err := l.CSRSign(ctx, req)
		if err == nil {
			l.signed.Add(1)
			cert.Signer, cert.Facts = signer(l), l.Report().Metadata.Facts // the next life may be another version
		}
		return cert, err
	})
}

// needsToken refuses a request without a token for a provider that signs nothing without one.
func (c Client) needsToken(l *life, token ca.Token) error {
	if token != "" || !l.Report().Metadata.Facts.NeedsToken {
		return nil
	}
	return ca.Errorf(ca.Unauthenticated, "provider %q signs nothing without a token, and none is configured: set token in its entry", c.s.name)
}

// signer returns a provider's name and version.
func signer(i instance) string {
	m := i.Report().Metadata
	return strings.TrimSpace(m.Name + " " + m.Version)
}

// Roots implements [ca.RootSource].
func (c Client) Roots(ctx context.Context) ([]byte, error) {
	return call(ctx, c, "Roots", c.want, able(wire.RootSource, func(ctx context.Context, l *life) ([]byte, error) { return l.Roots(ctx) }))
}

// ExchangeToken implements [ca.TokenExchanger].
func (c Client) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return call(ctx, c, "ExchangeToken", c.need, func(ctx context.Context, l *life) (ca.ExchangedToken, error) {
		answered := c.s.suspect(l)
		defer answered()
		return l.ExchangeToken(ctx, req)
	})
}

// CertifiesNames implements [ca.NameCertifier] by the metadata of the life that calls go to.
func (c Client) CertifiesNames(ctx context.Context) error {
	ctx, cancel := c.s.deadline(ctx)
	defer cancel()
	l, err := c.wait(ctx)
	if err != nil {
		return err
	}
	return l.Report().Metadata.Lacks(wire.NamesFromRequest)
}

// RenewalInfo implements [ca.RenewalAdvisor]. It starts no provider: advice is not urgent.
func (c Client) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	return call(ctx, c, "RenewalInfo", c.wait, able(wire.RenewalInfo, func(ctx context.Context, l *life) (ca.RenewalInfo, error) { return l.RenewalInfo(ctx, leaf) }))
}

// Revocations implements [ca.RevocationSource].
func (c Client) Revocations(ctx context.Context) ([]byte, error) {
	return call(ctx, c, "Revocations", c.want, able(wire.RevocationSource, func(ctx context.Context, l *life) ([]byte, error) { return l.Revocations(ctx) }))
}

// SignJWT implements [ca.JWTSigner].
func (c Client) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	return signSVID(ctx, c, "SignJWT", req.Token, req, (*life).SignJWT)
}

// SignWIT implements [ca.WITSigner]. Experimental.
func (c Client) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	return signSVID(ctx, c, "SignWIT", req.Token, req, (*life).SignWIT)
}

func signSVID[Q any](ctx context.Context, c Client, name string, token ca.Token, req Q, sign func(*life, context.Context, Q) (ca.Token, error)) (ca.Token, error) {
	return call(ctx, c, name, c.want, func(ctx context.Context, l *life) (ca.Token, error) {
		if err := c.needsToken(l, token); err != nil {
			return "", err
		}
		answered := c.s.suspect(l)
		defer answered()
		svid, err := sign(l, ctx, req)
		if err == nil {
			l.signed.Add(1)
		}
		return svid, err
	})
}

// WatchRoots implements [ca.RootWatcher].
func (c Client) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	return c.watch(ctx, wire.RootWatcher, (*life).WatchRoots, changed)
}

// WatchJWTKeys implements [ca.JWTSigner].
func (c Client) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return c.watch(ctx, wire.JWTSVID, (*life).WatchJWTKeys, changed)
}

// WatchWITKeys implements [ca.WITSigner]. Experimental.
func (c Client) WatchWITKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return c.watch(ctx, wire.WITSVID, (*life).WatchWITKeys, changed)
}

// watching is one of a life's watches.
type watching func(l *life, ctx context.Context, changed func([]byte) error) error

// watch continues with the next life: changed is called only for a set that differs.
func (c Client) watch(ctx context.Context, ability wire.Ability, watch watching, changed func([]byte) error) error {
	var last []byte
	wait := c.want // nothing was received yet
	for {
		l, err := wait(ctx)
		if err == nil {
			err = l.Report().Metadata.Lacks(ability)
		}
		if err != nil {
			return err
		}
		err = watchOne(ctx, l, watch, func(set []byte) error {
			if bytes.Equal(set, last) {
				return nil
			}
			last, wait = bytes.Clone(set), c.wait
			return changed(set)
		})
		if ctx.Err() != nil || !l.over() {
			return err
		}
	}
}

// watchOne watches until this life is about to end. It takes no slot, which it would keep
// for ever.
func watchOne(ctx context.Context, l *life, watch watching, changed func([]byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.leaving, cancel)()
	return l.hide(watch(l, ctx, changed))
}

// call gets a life by wait and makes one call to it. A provider that lost its settings
// gets them again, and the call is repeated once.
func call[T any](ctx context.Context, c Client, name string, wait func(context.Context) (*life, error), f func(context.Context, *life) (T, error)) (_ T, err error) {
	ctx, span := trace.Start(ctx, name, trace.Client)
	span.Set("provider", c.s.name)
	defer func() { span.End(err) }()
	ctx, cancel := c.s.deadline(ctx)
	defer cancel()
	var none T
	for {
		l, err := wait(ctx)
		if err != nil {
			return none, err
		}
		entered, err := l.enter(ctx)
		if err != nil {
			return none, ca.Errorf(ca.ReasonFor(err), "provider %q: %d calls in flight, none ended in time", c.s.name, cap(l.slots))
		}
		if !entered {
			continue
		}
		defer l.exit()
		out, err := f(ctx, l)
		if err != nil && ca.ActionFor(err) == ca.Configure && c.s.configureAgain(ctx, l) == nil {
			out, err = f(ctx, l)
		}
		return out, l.hide(err)
	}
}

// able makes a call only to a life that declares the ability: a call in vain would wake a provider
// whose memory is returned.
func able[T any](ability wire.Ability, f func(context.Context, *life) (T, error)) func(context.Context, *life) (T, error) {
	return func(ctx context.Context, l *life) (out T, err error) {
		if err := l.Report().Metadata.Lacks(ability); err != nil {
			return out, err
		}
		return f(ctx, l)
	}
}

// deadline gives ctx one if it has none.
func (s *Provider) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.opts.CallTimeout)
}
