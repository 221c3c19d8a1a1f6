package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// What the good provider takes and refuses.
const (
	goodToken   = "eyJ.the-token-that-is-taken.0011223344556677"
	staleToken  = "eyJ.the-token-that-has-expired.8899aabbccddeeff"
	goodSubject = "eyJ.the-subject-that-is-taken.0123456789abcdef"
	badSubject  = "eyJ.the-subject-that-is-not-taken.fedcba9876543210"
)

func goodKit() Kit {
	return Kit{
		Settings:        map[string]any{"address": "ca.example.org"},
		WrongSettings:   map[string]any{"address": "wrong"},
		Identity:        Names{SPIFFEID: "spiffe://example.org/web", DNSNames: []string{"web.example.org", "www.example.org"}, IPAddresses: []string{"192.0.2.1", "2001:db8::1"}},
		RefusedIdentity: Names{SPIFFEID: "spiffe://stranger.test/web"},
		Token:           goodToken, RefusedToken: staleToken, TokenRequired: true,
		Exchange: ca.TokenRequest{SubjectToken: goodSubject, Audience: "ca"}, RefusedSubjectToken: badSubject,
		Keys: []pki.KeyType{pki.ECDSAP256, pki.RSA2048},
	}
}

type goodOnes struct {
	Address  string `json:"address" jsonschema:"where the CA is"`
	Mode     string `json:"mode,omitempty" jsonschema:"how it works" default:"fast" enum:"fast,slow"`
	Password string `json:"password,omitempty" jsonschema:"what it logs in with" secret:"true"`
}

func (g goodOnes) Validate() error {
	if g.Address == "wrong" {
		return errors.New(`address is "wrong"`)
	}
	return nil
}

func (g goodOnes) ValidateOnline(context.Context) error { return nil }

// signs, tells (roots, or revocation lists), watches, exchanges and advises are what a provider's author writes.
type (
	signs     func(context.Context, ca.SignRequest) (ca.Certificate, error)
	tells     func(context.Context) ([]byte, error)
	watches   func(context.Context, func([]byte) error) error
	exchanges func(context.Context, ca.TokenRequest) (ca.ExchangedToken, error)
	advises   func(context.Context, []byte) (ca.RenewalInfo, error)
	jwts      func(context.Context, ca.JWTRequest) (ca.Token, error)
	wits      func(context.Context, ca.WITRequest) (ca.Token, error)
)

// authority keeps every rule. A mutant replaces one of its methods.
type authority struct {
	*catest.CA
	sign     signs
	tell     tells
	follow   watches
	exchange exchanges
	advise   advises
	revoke   tells
	jwt      jwts
	keys     watches
	claims   func(map[string]any) // changes those of a good JWT-SVID
	wit      wits
	witKeys  watches
	confirms func(map[string]any) // changes the claims of a good WIT-SVID
}

func newAuthority(opts catest.Options) *authority {
	opts.NamesFromRequest = true
	a := &authority{CA: catest.NewCA(opts)}
	a.sign, a.tell, a.follow, a.exchange, a.advise = a.goodSign, a.CA.Roots, a.CA.WatchRoots, a.goodExchange, a.goodAdvice
	lists := sync.OnceValue(func() []byte { return bytes.Join(a.CRLs(catest.CRL{Number: 1}), nil) })
	a.revoke = func(context.Context) ([]byte, error) { return lists(), nil }
	a.jwt, a.keys, a.claims = a.goodJWT, following(goodJWKS("good")), func(map[string]any) {}
	a.wit, a.witKeys, a.confirms = a.goodWIT, following(goodWITKeys("good-wit")), func(map[string]any) {}
	return a
}

func (a *authority) goodSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	switch {
	case ctx.Err() != nil:
		return ca.Certificate{}, ctx.Err()
	case req.Token != goodToken:
		return ca.Certificate{}, provider.Errorf(provider.Unauthenticated, "the token is not taken")
	case strings.Contains(req.SubjectID, "stranger"):
		return ca.Certificate{}, provider.Errorf(provider.Denied, "%s is not for you", req.SubjectID)
	}
	return a.CA.CSRSign(ctx, req)
}

func (a *authority) goodExchange(_ context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	if req.SubjectToken != goodSubject {
		return ca.ExchangedToken{}, provider.Errorf(provider.Unauthenticated, "the subject token is not taken")
	}
	return ca.ExchangedToken{AccessToken: "eyJ.new", IssuedType: "urn:ietf:params:oauth:token-type:jwt", Expiry: time.Now().Add(time.Hour)}, nil
}

func (a *authority) goodAdvice(_ context.Context, leaf []byte) (ca.RenewalInfo, error) {
	certs, err := pki.ParseCertificates(leaf)
	if err != nil {
		return ca.RenewalInfo{}, provider.Errorf(provider.Invalid, "%w", err)
	}
	if certs[0].Issuer.CommonName == certs[0].Subject.CommonName {
		return ca.RenewalInfo{}, provider.Errorf(provider.Invalid, "no certificate of this CA")
	}
	end := certs[0].NotAfter
	return ca.RenewalInfo{Start: end.Add(-30 * time.Minute), End: end.Add(-20 * time.Minute), Explanation: "https://ca.example.org/", RetryAfter: time.Hour}, nil
}

func (a *authority) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	return a.jwt(ctx, req)
}

func (a *authority) WatchJWTKeys(ctx context.Context, changed func([]byte) error) error {
	return a.keys(ctx, changed)
}

func (a *authority) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	return a.wit(ctx, req)
}

func (a *authority) WatchWITKeys(ctx context.Context, changed func([]byte) error) error {
	return a.witKeys(ctx, changed)
}

func (a *authority) CertifiesNames(context.Context) error { return nil }

func (a *authority) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	return a.advise(ctx, leaf)
}

func (a *authority) Revocations(ctx context.Context) ([]byte, error) { return a.revoke(ctx) }

func (a *authority) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return a.sign(ctx, req)
}

func (a *authority) Roots(ctx context.Context) ([]byte, error) { return a.tell(ctx) }

func (a *authority) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	return a.follow(ctx, changed)
}

func (a *authority) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return a.exchange(ctx, req)
}

// authorityOf returns a provider whose authority is the good one, changed.
func authorityOf(opts catest.Options, change func(*authority)) func() wire.Provider {
	made := newAuthority(opts) // one: a provider is given its settings again, and tells the same roots
	change(made)
	return provider.Define("kit", "1.0.0", func(context.Context, goodOnes) (*authority, error) { return made, nil }).Provider
}

func good() func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(*authority) {})
}

// drafting has each certificate changed before it is signed.
func drafting(change func(*catest.Draft)) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) { a.Always(catest.Fault{Break: change}) })
}

// replying has each reply changed, or replaced by an error.
func replying(change func(ca.SignRequest, *ca.Certificate) error) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
		a.sign = func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
			cert, err := a.goodSign(ctx, req)
			if err == nil {
				err = change(req, &cert)
			}
			return cert, err
		}
	})
}

// before has each request looked at before it is served well.
func before(look func(context.Context, ca.SignRequest) error) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
		a.sign = func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
			if err := look(ctx, req); err != nil {
				return ca.Certificate{}, err
			}
			return a.goodSign(ctx, req)
		}
	})
}

// refusing has an error of the good one replaced.
func refusing(where func(ca.SignRequest) bool, with func(ca.SignRequest) (ca.Certificate, error)) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
		a.sign = func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
			if where(req) {
				return with(req)
			}
			return a.goodSign(ctx, req)
		}
	})
}

func nonsense(req ca.SignRequest) bool {
	_, err := pki.ParseCSR(req.CSR)
	return err != nil && strings.HasPrefix(string(req.CSR), string(nonsenseCSR()[:60]))
}

func unprovenRequest(req ca.SignRequest) bool {
	_, err := pki.ParseCSR(req.CSR)
	return err != nil && !nonsense(req)
}

func answer(err error) func(ca.SignRequest) (ca.Certificate, error) {
	return func(ca.SignRequest) (ca.Certificate, error) { return ca.Certificate{}, err }
}

func telling(change func(a *authority) tells) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) { a.tell = change(a) })
}

func watchingRoots(change func(a *authority) watches) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) { a.follow = change(a) })
}

func exchanging(change func(token ca.ExchangedToken) (ca.ExchangedToken, error)) func() wire.Provider {
	return authorityOf(catest.Options{}, func(a *authority) {
		a.exchange = func(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
			token, err := a.goodExchange(ctx, req)
			if err != nil {
				return token, err
			}
			return change(token)
		}
	})
}

func refusingSubjects(err error) func() wire.Provider {
	return authorityOf(catest.Options{}, func(a *authority) {
		a.exchange = func(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
			if req.SubjectToken == badSubject {
				return ca.ExchangedToken{}, err
			}
			return a.goodExchange(ctx, req)
		}
	})
}

// crowded refuses more than nine calls at once. Calls that overlap wait for one to be refused,
// so that the refusal does not depend on timing.
func crowded() func() error {
	var inside, refused atomic.Int64
	return func() error {
		defer inside.Add(-1)
		if inside.Add(1) > 9 {
			refused.Add(1)
			return provider.Errorf(provider.RateLimited, "too many at once")
		}
		before := refused.Load()
		time.Sleep(slice)
		until(300*time.Millisecond, func() bool { return inside.Load() == 1 || refused.Load() > before })
		return nil
	}
}

// outer is a provider as a host sees it, whose author wrote more than one method.
type outer struct {
	wire.Provider
	metadata  func(wire.Metadata) (wire.Metadata, error)
	validate  func(settings map[string]any, found []wire.Diagnostic) []wire.Diagnostic
	online    func() []wire.Diagnostic
	configure func(ctx context.Context, settings map[string]any) error
	ready     func(error) error
	sign      func(error) error
	roots     func(error) error
	watch     func(error) error
	exchange  func(error) error
	advise    func(error) error
	revoke    func(error) error
	certifies func(error) error
	jwt       func(error) error
	wit       func(error) error
	witKeys   func(error) error
	keys      func(error) error
	closed    chan struct{}
}

func wrapped(change func(o *outer)) func() wire.Provider {
	make := good()
	return func() wire.Provider {
		o := around(make())
		change(o)
		return o
	}
}

func around(p wire.Provider) *outer { return &outer{Provider: p, closed: make(chan struct{})} }

func (o *outer) Close() error {
	close(o.closed)
	closeProvider(o.Provider)
	return nil
}

// linger blocks for that long, at most until the provider is closed. A watch lingers for longer than any busy
// machine delays another one; a call must be over before those after it run out of time.
func (o *outer) linger(while time.Duration) {
	select {
	case <-o.closed:
	case <-time.After(while):
	}
}

func (o *outer) Metadata(ctx context.Context) (wire.Metadata, error) {
	m, err := o.Provider.Metadata(ctx)
	m.Abilities = slices.Clone(m.Abilities)
	if err == nil && o.metadata != nil {
		return o.metadata(m)
	}
	return m, err
}

func (o *outer) Validate(ctx context.Context, settings map[string]any) ([]wire.Diagnostic, error) {
	found, err := o.Provider.Validate(ctx, settings)
	if o.validate != nil {
		found = o.validate(settings, found)
	}
	return found, err
}

func (o *outer) ValidateOnline(ctx context.Context, settings map[string]any) ([]wire.Diagnostic, error) {
	if o.online != nil {
		return o.online(), nil
	}
	return o.Provider.ValidateOnline(ctx, settings)
}

func (o *outer) Configure(ctx context.Context, settings map[string]any) error {
	if o.configure != nil {
		return o.configure(ctx, settings)
	}
	return o.Provider.Configure(ctx, settings)
}

func through(change func(error) error, err error) error {
	if change == nil {
		return err
	}
	return change(err)
}

func (o *outer) Ready(ctx context.Context) error { return through(o.ready, o.Provider.Ready(ctx)) }

func (o *outer) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	cert, err := o.Provider.CSRSign(ctx, req)
	return cert, through(o.sign, err)
}

func (o *outer) Roots(ctx context.Context) ([]byte, error) {
	text, err := o.Provider.Roots(ctx)
	return text, through(o.roots, err)
}

func (o *outer) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	return through(o.watch, o.Provider.WatchRoots(ctx, changed))
}

func (o *outer) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	token, err := o.Provider.ExchangeToken(ctx, req)
	return token, through(o.exchange, err)
}

func (o *outer) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	info, err := o.Provider.RenewalInfo(ctx, leaf)
	return info, through(o.advise, err)
}

func (o *outer) Revocations(ctx context.Context) ([]byte, error) {
	lists, err := o.Provider.Revocations(ctx)
	return lists, through(o.revoke, err)
}

func (o *outer) CertifiesNames(ctx context.Context) error {
	return through(o.certifies, o.Provider.CertifiesNames(ctx))
}

func (o *outer) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	token, err := o.Provider.SignJWT(ctx, req)
	return token, through(o.jwt, err)
}

func (o *outer) WatchJWTKeys(ctx context.Context, changed func([]byte) error) error {
	return through(o.keys, o.Provider.WatchJWTKeys(ctx, changed))
}

func (o *outer) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	token, err := o.Provider.SignWIT(ctx, req)
	return token, through(o.wit, err)
}

func (o *outer) WatchWITKeys(ctx context.Context, changed func([]byte) error) error {
	return through(o.witKeys, o.Provider.WatchWITKeys(ctx, changed))
}

// instead answers another error in the place of one.
func instead(of, with error) func(error) error {
	return func(err error) error {
		if errors.Is(err, of) {
			return with
		}
		return err
	}
}

// without drops what a check found that has one of these words in it.
func without(words ...string) func(map[string]any, []wire.Diagnostic) []wire.Diagnostic {
	return func(_ map[string]any, found []wire.Diagnostic) []wire.Diagnostic {
		return slices.DeleteFunc(found, func(d wire.Diagnostic) bool {
			return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(d.Summary, word) })
		})
	}
}

// counting returns a count of calls, from 1.
func counting() func() int {
	var mu sync.Mutex
	n := 0
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		n++
		return n
	}
}

func describe(results []Result) string {
	var text strings.Builder
	for _, r := range results {
		if r.Outcome != Passed {
			fmt.Fprintf(&text, "\n%s %s: %s", r.ID, r.Outcome, r.Seen)
		}
	}
	return text.String()
}
