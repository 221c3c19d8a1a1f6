package conformance

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// runAll runs all checks on a virtual clock.
func runAll(t *testing.T, kit Kit, subject Subject) []Result {
	t.Helper()
	return run(t, NewSession(kit, subject), inTimeAlways, Checks())
}

// inTimeAlways is the machine of a virtual clock: it never stalls.
func inTimeAlways() func() bool { return func() bool { return false } }

func run(t *testing.T, s *Session, stalls func() func() bool, checks []Check) (results []Result) {
	t.Helper()
	s.stalls = stalls
	virtually(t, func(t *testing.T) {
		defer s.Close()
		for _, check := range checks {
			results = append(results, s.Do(during(t, check), check))
		}
	})
	return results
}

// virtually runs a test on a virtual clock that begins now, so that the certificates of a CA that
// was made before are valid.
func virtually(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(begin))
		test(t)
	})
}

type runningCheck struct{}

// during returns a context that tells a mutant, in the form of a value, which check calls it.
func during(t *testing.T, check Check) context.Context {
	return context.WithValue(t.Context(), runningCheck{}, check.ID)
}

func failedOf(results []Result) []string {
	var failed []string
	for _, r := range results {
		if r.Outcome == Failed {
			failed = append(failed, r.ID)
		}
	}
	return failed
}

// Each of these breaks exactly one rule. A name after a slash distinguishes mutants of one rule.
func mutants() map[string]func() wire.Provider {
	all := map[string]func() wire.Provider{}
	for _, some := range []map[string]func() wire.Provider{outerMutants(), schemaMutants(), chainMutants(), signMutants(), refusalMutants(), faultMutants(), rootMutants(), watchMutants(), tokenMutants(), nameMutants(), renewalMutants(), revocationMutants(), jwtMutants(), witMutants()} {
		maps.Copy(all, some)
	}
	return all
}

func TestProviderThatBreaksOneRuleFailsExactlyThatCheck(t *testing.T) {
	eachMutantFails(t, inTimeAlways)
}

func eachMutantFails(t *testing.T, stalls func() func() bool) {
	t.Helper()
	for name, make := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewSession(mutantsKit(name), Value(make))
			if !strings.HasPrefix(name, "FAULT-") {
				s.crowd = 16 // more than crowded takes
			}
			checks := Checks()
			if testing.Short() {
				checks = upTo(is(checkOf(name)))
			}
			results := run(t, s, stalls, checks)
			if failed := failedOf(results); !slices.Equal(failed, []string{checkOf(name)}) {
				t.Errorf("failed %v%s", failed, describe(results))
			}
		})
	}
}

func is(id string) func(string) bool { return func(other string) bool { return other == id } }

// upTo returns the chosen checks and all those that they build on.
func upTo(chosen func(id string) bool) []Check {
	wanted := map[string]bool{}
	all := Checks()
	for _, c := range all {
		wanted[c.ID] = chosen(c.ID)
	}
	maps.DeleteFunc(wanted, func(_ string, is bool) bool { return !is })
	for grew := true; grew; {
		before := len(wanted)
		for _, c := range all {
			for _, after := range c.After {
				wanted[after] = wanted[after] || wanted[c.ID]
			}
		}
		maps.DeleteFunc(wanted, func(_ string, is bool) bool { return !is })
		grew = len(wanted) > before
	}
	return slices.DeleteFunc(all, func(c Check) bool { return !wanted[c.ID] })
}

// mutantsKit is the good kit, with a short timeout for mutants that are silent until then.
func mutantsKit(name string) Kit {
	kit := goodKit()
	if name == "WATCH-01" || name == "WATCH-10" {
		kit.CallTimeout = Duration(2 * time.Second)
	}
	return kit
}

func checkOf(mutant string) string {
	id, _, _ := strings.Cut(mutant, "/")
	return id
}

func outerMutants() map[string]func() wire.Provider {
	described := func(change func(m *wire.Metadata)) func() wire.Provider {
		return wrapped(func(o *outer) {
			o.metadata = func(m wire.Metadata) (wire.Metadata, error) { change(&m); return m, nil }
		})
	}
	unavailable := instead(ca.ErrNotConfigured, ca.ErrUnavailable)
	return map[string]func() wire.Provider{
		"META-01": wrapped(func(o *outer) {
			o.metadata = func(m wire.Metadata) (wire.Metadata, error) { return m, o.Provider.Ready(context.Background()) }
		}),
		"META-01/slow": wrapped(func(o *outer) {
			once := sync.OnceFunc(func() { time.Sleep(2 * time.Second) })
			o.metadata = func(m wire.Metadata) (wire.Metadata, error) { once(); return m, nil }
		}),
		"META-02": described(func(m *wire.Metadata) { m.Name = "My Provider" }),
		"META-03": described(func(m *wire.Metadata) { m.Version = "" }),
		"META-04": described(func(m *wire.Metadata) { m.Abilities = m.Abilities[1:] }),
		"META-05": described(func(m *wire.Metadata) { m.Abilities = append(m.Abilities, wire.RootSource) }),
		"META-06": wrapped(func(o *outer) {
			o.metadata = func(m wire.Metadata) (wire.Metadata, error) {
				if o.Provider.Ready(context.Background()) == nil {
					m.Version += "-ready"
				}
				return m, nil
			}
		}),
		"META-07": described(func(m *wire.Metadata) {
			m.Abilities = slices.DeleteFunc(m.Abilities, func(a wire.Ability) bool { return a == wire.TokenExchanger })
		}),
		"META-08": wrapped(func(o *outer) { o.exchange = instead(ca.ErrUnauthenticated, ca.ErrUnimplemented) }),
		"META-08/watch": watchingRoots(func(*authority) watches {
			return func(context.Context, func([]byte) error) error { return ca.ErrUnimplemented }
		}),
		"META-07/names": described(func(m *wire.Metadata) {
			m.Abilities = slices.DeleteFunc(m.Abilities, func(a wire.Ability) bool { return a == wire.NamesFromRequest })
		}),
		"META-08/names": wrapped(func(o *outer) {
			o.certifies = func(error) error { return ca.ErrUnimplemented }
		}),
		"JWT-09":   wrapped(func(o *outer) { o.jwt = unavailable }),
		"WIT-12":   wrapped(func(o *outer) { o.wit = unavailable }),
		"RENEW-07": wrapped(func(o *outer) { o.advise = unavailable }),
		"CRL-06":   wrapped(func(o *outer) { o.revoke = unavailable }),
		"PROTO-01": wrapped(func(o *outer) { o.sign = unavailable }),
		"PROTO-02": wrapped(func(o *outer) { o.ready = instead(ca.ErrNotConfigured, nil) }),
		"ROOT-09":  wrapped(func(o *outer) { o.roots = unavailable }),
		"WATCH-08": wrapped(func(o *outer) { o.watch = unavailable }),
		"TOKEN-07": wrapped(func(o *outer) { o.exchange = unavailable }),
		"WATCH-09": wrapped(func(o *outer) { o.watch = instead(ca.ErrUnavailable, ca.ErrDenied) }),
		"SET-06":   wrapped(func(o *outer) { o.configure = func(context.Context, map[string]any) error { return ca.ErrInvalid } }),
		"SET-07": wrapped(func(o *outer) {
			o.validate = func(settings map[string]any, found []wire.Diagnostic) []wire.Diagnostic {
				return append(found, wire.Diagnostic{Summary: "it is Monday"})
			}
		}),
		"SET-08": wrapped(func(o *outer) { o.validate = without("no setting " + stranger) }),
		"SET-09": wrapped(func(o *outer) {
			o.configure = func(ctx context.Context, settings map[string]any) error {
				settings = maps.Clone(settings)
				delete(settings, stranger)
				return o.Provider.Configure(ctx, settings)
			}
		}),
		"SET-10": wrapped(func(o *outer) { o.validate = without("is not set") }),
		"SET-11": wrapped(func(o *outer) { o.validate = without("it takes a string") }),
		"SET-12": wrapped(func(o *outer) { o.validate = without("fast or slow") }),
		"SET-13": wrapped(func(o *outer) { o.validate = without(`"wrong"`) }),
		"SET-14": wrapped(func(o *outer) {
			o.configure = func(ctx context.Context, settings map[string]any) error {
				return instead(ca.ErrInvalid, ca.ErrUnavailable)(o.Provider.Configure(ctx, settings))
			}
			configure := o.configure
			o.configure = func(ctx context.Context, settings map[string]any) error {
				if settings["address"] != "wrong" {
					return o.Provider.Configure(ctx, settings)
				}
				return configure(ctx, settings)
			}
		}),
		"SET-15": wrapped(func(o *outer) {
			o.validate = func(settings map[string]any, found []wire.Diagnostic) []wire.Diagnostic {
				_ = o.Provider.Configure(context.Background(), settings)
				return found
			}
		}),
		"SET-16": wrapped(func(o *outer) {
			o.configure = func(ctx context.Context, settings map[string]any) error {
				err := o.Provider.Configure(ctx, settings)
				if err != nil {
					closeProvider(o.Provider)
				}
				return err
			}
		}),
		"SET-17": wrapped(func(o *outer) {
			o.configure = func(ctx context.Context, settings map[string]any) error {
				if o.Provider.Ready(ctx) == nil && settings[stranger] == nil {
					return ca.ErrAborted
				}
				return o.Provider.Configure(ctx, settings)
			}
		}),
		"SET-18": wrapped(func(o *outer) {
			o.validate = func(_ map[string]any, found []wire.Diagnostic) []wire.Diagnostic {
				for i := range found {
					found[i].Pointer = strings.TrimPrefix(found[i].Pointer, "/")
				}
				return found
			}
		}),
		"SET-20": wrapped(func(o *outer) {
			o.configure = func(ctx context.Context, settings map[string]any) error {
				if err := o.Provider.Configure(ctx, settings); err != nil {
					return provider.Errorf(provider.Invalid, "%v: %w", settings, err)
				}
				return nil
			}
		}),
		"SET-21": wrapped(func(o *outer) {
			o.online = func() []wire.Diagnostic { return []wire.Diagnostic{{Summary: "nobody is there"}} }
		}),
	}
}

func schemaMutants() map[string]func() wire.Provider {
	schema := func(old, with string) func() wire.Provider {
		return wrapped(func(o *outer) {
			o.metadata = func(m wire.Metadata) (wire.Metadata, error) {
				changed := strings.ReplaceAll(m.SettingsSchema, old, with)
				if changed == m.SettingsSchema {
					panic("the schema has no " + old + ": " + m.SettingsSchema)
				}
				m.SettingsSchema = changed
				return m, nil
			}
		})
	}
	return map[string]func() wire.Provider{
		"SET-01": schema(`"type":"object"`, `"type":7`),
		"SET-02": schema(`"additionalProperties":false`, `"additionalProperties":true`),
		"SET-03": schema(`"description":"where the CA is"`, `"description":""`),
		"SET-04": schema(`"default":"fast"`, `"default":"faster"`),
		"SET-05": schema(`"description":"where the CA is"`, `"description":"where","minLength":100`),
		"SET-19": schema(`,"writeOnly":true`, ``),
		"SET-22": schema(`"description":"where the CA is"`, `"description":"where the CA is","x-countersign-address":"uri"`),
	}
}

func chainMutants() map[string]func() wire.Provider {
	leaf := func(change func(*x509.Certificate)) func() wire.Provider {
		return drafting(func(d *catest.Draft) { change(d.Leaf) })
	}
	return map[string]func() wire.Provider{
		"SIGN-02": replying(func(_ ca.SignRequest, c *ca.Certificate) error {
			c.Chain = append(c.Chain, "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"...)
			return nil
		}),
		"SIGN-03": authorityOf(catest.Options{Intermediates: 10}, func(*authority) {}),
		"SIGN-04": drafting(catest.WrongKey),
		"SIGN-05": drafting(catest.LeafIsCA),
		"SIGN-06": leaf(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }),
		"SIGN-07": drafting(catest.WrongUsage),
		"SIGN-08": drafting(catest.WrongName),
		"SIGN-09": drafting(catest.RootInChain),
		"SIGN-10": leaf(func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 }),
		"SIGN-11": drafting(func(d *catest.Draft) { slices.Reverse(d.Above) }),
		"SIGN-12": authorityOf(catest.Options{}, func(a *authority) { a.sign = signedByNoCA(a) }),
		"SIGN-13": leaf(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		}),
		"SIGN-14": replying(func(_ ca.SignRequest, c *ca.Certificate) error { c.Roots = c.Chain; return nil }),
		"SIGN-15": drafting(catest.OtherAuthority),
		"SIGN-16": leaf(func(c *x509.Certificate) { c.NotBefore = c.NotBefore.Add(20 * time.Minute) }),
		"SIGN-17": drafting(catest.Expired),
		"SIGN-18": drafting(catest.TooLong),
		"SIGN-19": authorityOf(catest.Options{CALifetime: 100 * time.Minute}, func(*authority) {}),
		"SIGN-21": leaf(func(c *x509.Certificate) { c.SerialNumber = big.NewInt(7) }),
	}
}

// signedByNoCA has the leaf signed by a certificate that may not do so.
func signedByNoCA(a *authority) signs {
	rootKey, _ := pki.GenerateKey("")
	key, _ := pki.GenerateKey("")
	now := time.Now()
	make := func(name string, isCA bool) *x509.Certificate {
		return &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour), BasicConstraintsValid: true, IsCA: isCA,
			KeyUsage: x509.KeyUsageDigitalSignature,
		}
	}
	issue := func(template, parent *x509.Certificate, public, signer any) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
		if err != nil {
			panic(err)
		}
		cert, _ := x509.ParseCertificate(der)
		return cert
	}
	rootTemplate := make("root", true)
	rootTemplate.KeyUsage = x509.KeyUsageCertSign
	root := issue(rootTemplate, rootTemplate, rootKey.Public(), rootKey)
	middle := issue(make("no CA", false), root, key.Public(), rootKey)
	a.SetRoots(pki.NewBundle(root))
	return func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
		if _, err := a.goodSign(ctx, req); err != nil {
			return ca.Certificate{}, err
		}
		csr, _ := pki.ParseCSR(req.CSR)
		template := make("leaf", false)
		template.URIs, template.DNSNames, template.IPAddresses = csr.URIs, csr.DNSNames, csr.IPAddresses
		template.NotAfter = time.Now().Add(time.Hour)
		leaf := issue(template, middle, csr.PublicKey, key)
		return ca.Certificate{Chain: pki.EncodeCertificates([]*x509.Certificate{leaf, middle}), Roots: a.Bundle().PEM()}, nil
	}
}

func signMutants() map[string]func() wire.Provider {
	var seen, cached sync.Map
	var first ca.Certificate
	var last []byte
	caches := counting()
	return map[string]func() wire.Provider{
		"SIGN-01": refusing(func(req ca.SignRequest) bool {
			_, err := pki.ParseCSR(req.CSR)
			return err == nil && req.Token == goodToken && !strings.Contains(req.SubjectID, "stranger")
		},
			answer(provider.Errorf(provider.Unavailable, "nobody is there"))),
		"SIGN-20": replying(func(req ca.SignRequest, c *ca.Certificate) error { // remembers by the names
			if caches() == 1 {
				first = *c
			}
			if _, again := cached.LoadOrStore(req.ID, true); !again {
				*c = first
			}
			return nil
		}),
		"SIGN-22": replying(func(req ca.SignRequest, c *ca.Certificate) error {
			if req.TTL == 0 {
				return provider.Errorf(provider.Invalid, "a lifetime is needed")
			}
			return nil
		}),
		"SIGN-23": replying(func(req ca.SignRequest, c *ca.Certificate) error {
			if csr, _ := pki.ParseCSR(req.CSR); csr.PublicKeyAlgorithm == x509.RSA {
				return provider.Errorf(provider.Unavailable, "no RSA today")
			}
			return nil
		}),
		"SIGN-24": replying(func(req ca.SignRequest, c *ca.Certificate) error {
			if _, again := seen.LoadOrStore(req.ID, true); again {
				return provider.Errorf(provider.Aborted, "it was asked before")
			}
			return nil
		}),
		"SIGN-25": authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
			a.sign = func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
				csr, err := pki.ParseCSR(req.CSR)
				if err == nil && slices.ContainsFunc(csr.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 19}) }) {
					a.Next(1, catest.Fault{Break: catest.LeafIsCA})
				}
				return a.goodSign(ctx, req)
			}
		}),
		"SIGN-26": replying(func(req ca.SignRequest, c *ca.Certificate) error {
			if len(req.DNSNames) > 0 {
				req.DNSNames[0] = strings.ToUpper(req.DNSNames[0])
			}
			return nil
		}),
		"SIGN-27": authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
			a.sign = func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
				cert, err := a.goodSign(ctx, req)
				if err == nil && ctx.Value(runningCheck{}) == "SIGN-27" { // the callers of FAULT-01 still read theirs
					if last != nil {
						last[len(last)-1] = ' '
					}
					last = cert.Chain
				}
				return cert, err
			}
		}),
	}
}

func refusalMutants() map[string]func() wire.Provider {
	unavailable := answer(provider.Errorf(provider.Unavailable, "try again"))
	return map[string]func() wire.Provider{
		"DENY-01": refusing(nonsense, unavailable),
		"DENY-02": refusing(unprovenRequest, answer(provider.Errorf(provider.Internal, "assertion failed"))),
		"DENY-03": refusing(nonsense, answer(provider.Errorf(provider.Invalid, "line 1\nline 2"))),
		"DENY-04": refusing(nonsense, func(req ca.SignRequest) (ca.Certificate, error) {
			return ca.Certificate{}, provider.Errorf(provider.Invalid, "no CSR came with %s", req.Token.Reveal())
		}),
		"DENY-05": refusing(func(req ca.SignRequest) bool { return strings.Contains(req.SubjectID, "stranger") }, unavailable),
		"DENY-06": refusing(func(req ca.SignRequest) bool { return req.Token == staleToken }, unavailable),
		"DENY-07": refusing(func(req ca.SignRequest) bool { return req.Token == "" }, unavailable),
	}
}

func faultMutants() map[string]func() wire.Provider {
	full := crowded()
	var lost atomic.Bool
	var gone atomic.Int64 // calls in a row that were cancelled: earlier checks cancel single ones
	slow := before(func(ctx context.Context, _ ca.SignRequest) error {
		until(20*slice, func() bool { return ctx.Err() != nil }) // so that there is something to cancel
		return ctx.Err()
	})
	return map[string]func() wire.Provider{
		"FAULT-01": before(func(context.Context, ca.SignRequest) error { return full() }),
		"FAULT-02": func() wire.Provider {
			o := around(slow())
			o.sign = func(err error) error {
				if errors.Is(err, context.Canceled) {
					o.linger(5 * time.Second)
				}
				return err
			}
			return o
		},
		"FAULT-03": before(func(ctx context.Context, _ ca.SignRequest) error {
			if ctx.Err() != nil {
				return provider.Errorf(provider.Denied, "the CA said nothing")
			}
			return nil
		}),
		"FAULT-04": wrapped(func(o *outer) {
			var configured, cut atomic.Int64
			o.configure = func(ctx context.Context, settings map[string]any) error {
				err := o.Provider.Configure(ctx, settings)
				if err == nil && configured.Add(1) > 1 {
					cut.Store(1)
				}
				return err
			}
			o.sign = func(err error) error {
				if cut.CompareAndSwap(1, 0) {
					return provider.Errorf(provider.Unavailable, "the client was closed")
				}
				return err
			}
		}),
		"FAULT-05": before(func(ctx context.Context, _ ca.SignRequest) error {
			switch {
			case ctx.Err() != nil:
				lost.Store(lost.Load() || gone.Add(1) > crowd/2)
			case lost.Swap(false): // and no other check suffers, as this one may be repeated
				return provider.Errorf(provider.RateLimited, "all places are taken")
			default:
				gone.Store(0)
			}
			return nil
		}),
	}
}

func rootMutants() map[string]func() wire.Provider {
	stranger := catest.NewCA(catest.Options{}).Bundle()
	full, turn := crowded(), counting()
	changed := func(change func(a *authority, text []byte) []byte) func() wire.Provider {
		return telling(func(a *authority) tells {
			return func(ctx context.Context) ([]byte, error) { return change(a, a.Bundle().PEM()), nil }
		})
	}
	return map[string]func() wire.Provider{
		"ROOT-01": telling(func(*authority) tells {
			return func(context.Context) ([]byte, error) {
				return nil, provider.Errorf(provider.Unavailable, "nobody is there")
			}
		}),
		"ROOT-02": changed(func(_ *authority, text []byte) []byte { return []byte("these are the roots") }),
		"ROOT-03": telling(func(a *authority) tells {
			return func(ctx context.Context) ([]byte, error) { return a.IstioFiles()["ca-cert.pem"], nil }
		}),
		"ROOT-04": authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
			old := catest.NewCA(catest.Options{Now: func() time.Time { return time.Now().Add(-24 * time.Hour) }, CALifetime: 2 * time.Hour})
			a.SetRoots(a.Bundle().Union(old.Bundle()))
		}),
		"ROOT-05": changed(func(_ *authority, text []byte) []byte { return append(text, text...) }),
		"ROOT-06": changed(func(a *authority, text []byte) []byte {
			if turn()%2 == 0 {
				return a.Bundle().Union(stranger).PEM()
			}
			return text
		}),
		"ROOT-07": changed(func(*authority, []byte) []byte { return stranger.PEM() }),
		"ROOT-08": replying(func(_ ca.SignRequest, c *ca.Certificate) error {
			c.Roots = append(c.Roots, stranger.PEM()...)
			return nil
		}),
		"ROOT-10": telling(func(a *authority) tells {
			return func(ctx context.Context) ([]byte, error) { return a.Bundle().PEM(), full() }
		}),
	}
}

func watchMutants() map[string]func() wire.Provider {
	stranger := catest.NewCA(catest.Options{}).Bundle()
	told := func(change func(a *authority) []byte) func() wire.Provider {
		return watchingRoots(func(a *authority) watches {
			return func(ctx context.Context, changed func([]byte) error) error {
				if err := changed(change(a)); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			}
		})
	}
	var mu sync.Mutex
	return map[string]func() wire.Provider{
		"WATCH-01": watchingRoots(func(*authority) watches {
			return func(ctx context.Context, _ func([]byte) error) error { <-ctx.Done(); return ctx.Err() }
		}),
		"WATCH-02": told(func(*authority) []byte { return nil }),
		"WATCH-03": told(func(a *authority) []byte { return a.Bundle().Union(stranger).PEM() }),
		"WATCH-04": watchingRoots(func(a *authority) watches {
			return func(_ context.Context, changed func([]byte) error) error {
				return errors.Join(changed(a.Bundle().PEM()), provider.Errorf(provider.Unavailable, "that is all"))
			}
		}),
		"WATCH-05": watchingRoots(func(a *authority) watches {
			return func(ctx context.Context, changed func([]byte) error) error {
				for {
					if err := changed(a.Bundle().PEM()); err != nil {
						return err
					}
					select {
					case <-time.After(10 * time.Millisecond):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
		}),
		"WATCH-06": wrapped(func(o *outer) {
			o.watch = func(err error) error {
				if errors.Is(err, context.Canceled) {
					o.linger(time.Minute)
				}
				return err
			}
		}),
		"WATCH-07": watchingRoots(func(a *authority) watches {
			return func(ctx context.Context, changed func([]byte) error) error {
				if !until(time.Second, mu.TryLock) { // one that was given up goes in a moment
					return provider.Errorf(provider.RateLimited, "one is enough")
				}
				defer mu.Unlock()
				return a.CA.WatchRoots(ctx, changed)
			}
		}),
		"WATCH-10": watchingRoots(func(a *authority) watches {
			return func(ctx context.Context, changed func([]byte) error) error {
				return a.CA.WatchRoots(ctx, func(roots []byte) error { _ = changed(roots); return nil })
			}
		}),
	}
}

func tokenMutants() map[string]func() wire.Provider {
	changed := func(change func(*ca.ExchangedToken)) func() wire.Provider {
		return exchanging(func(token ca.ExchangedToken) (ca.ExchangedToken, error) { change(&token); return token, nil })
	}
	full := crowded()
	return map[string]func() wire.Provider{
		"TOKEN-01": exchanging(func(token ca.ExchangedToken) (ca.ExchangedToken, error) {
			return token, provider.Errorf(provider.Unavailable, "nobody is there")
		}),
		"TOKEN-02": changed(func(token *ca.ExchangedToken) { token.Expiry = time.Now().Add(-time.Minute) }),
		"TOKEN-03": changed(func(token *ca.ExchangedToken) { token.IssuedType = "jwt" }),
		"TOKEN-04": changed(func(token *ca.ExchangedToken) { token.AccessToken = "Bearer " + token.AccessToken }),
		"TOKEN-05": refusingSubjects(provider.Errorf(provider.Unavailable, "try again")),
		"TOKEN-06": refusingSubjects(provider.Errorf(provider.Denied, "%s", fmt.Sprint("not for ", badSubject))),
		"TOKEN-08": exchanging(func(token ca.ExchangedToken) (ca.ExchangedToken, error) { return token, full() }),
	}
}
