package federation

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestBundleIsFetchedFromWebServer(t *testing.T) {
	one, two := newRoot(t, "one"), newRoot(t, "two")
	p := publish(t, nil, one.Cert)
	s := mustSource(t, Options{}, Endpoint{TrustDomain: "example.org", URL: p.URL, RootFile: p.rootFile(t)})
	if s.Bundle("example.org").Len() != 0 || s.Bundle("other.example") != nil {
		t.Error("there are roots from nowhere")
	}
	if err := try(t, s); err != nil || !s.Bundle("example.org").Equal(pki.NewBundle(one.Cert)) {
		t.Errorf("%d roots, %v", s.Bundle("example.org").Len(), err)
	}
	p.bundle.AddX509Authority(two.Cert)
	if err := try(t, s); err != nil || !s.Bundle("example.org").Equal(pki.NewBundle(one.Cert, two.Cert)) {
		t.Errorf("%d roots, %v", s.Bundle("example.org").Len(), err)
	}
}

func TestSPIFFEServerIsVerifiedByHeldRoots(t *testing.T) {
	const id = "spiffe://example.org/bundle-server"
	first, second := newRoot(t, "first"), newRoot(t, "second")
	certificate := serverOf(t, first, id)
	p := publish(t, &certificate, first.Cert, second.Cert)
	s := mustSource(t, Options{}, Endpoint{TrustDomain: "example.org", URL: p.URL, ServerID: id, Initial: pki.NewBundle(first.Cert)})
	if err := try(t, s); err != nil || s.Bundle("example.org").Len() != 2 {
		t.Fatalf("%d roots, %v", s.Bundle("example.org").Len(), err)
	}
	// Its next certificate leads to a root that only the bundle has told us of.
	p.TLS.Certificates[0] = serverOf(t, second, id)
	p.bundle.RemoveX509Authority(first.Cert)
	if err := try(t, s); err != nil || !s.Bundle("example.org").Equal(pki.NewBundle(second.Cert)) {
		t.Errorf("%d roots, %v", s.Bundle("example.org").Len(), err)
	}
	for name, impostor := range map[string]tls.Certificate{
		"another of the domain": serverOf(t, second, "spiffe://example.org/web"),
		"a root that was":       serverOf(t, first, id),
		"another domain's":      serverOf(t, newRoot(t, "x"), "spiffe://other.example/bundle-server"),
	} {
		p.TLS.Certificates[0] = impostor
		if err := try(t, s); err == nil || s.Bundle("example.org").Len() != 1 {
			t.Errorf("%s: %d roots, %v", name, s.Bundle("example.org").Len(), err)
		}
	}
}

// The roots of the last run verify a server whose initial ones are gone, and no longer once it has
// told what its roots are.
func TestKeptRootsVerifyServerUntilItHasAnswered(t *testing.T) {
	const id = "spiffe://example.org/bundle-server"
	initial, last := newRoot(t, "initial"), newRoot(t, "last")
	certificate := serverOf(t, last, id)
	p := publish(t, &certificate, last.Cert)
	endpoint := Endpoint{TrustDomain: "example.org", URL: p.URL, ServerID: id, Initial: pki.NewBundle(initial.Cert)}
	if err := try(t, mustSource(t, Options{}, endpoint)); err == nil {
		t.Error("verified by nothing")
	}
	kept := func(string) *pki.Bundle { return pki.NewBundle(last.Cert) }
	s := mustSource(t, Options{Kept: kept}, endpoint)
	if err := try(t, s); err != nil || !s.Bundle("example.org").Equal(kept("")) {
		t.Fatalf("%d roots, %v", s.Bundle("example.org").Len(), err)
	}
	p.bundle.AddX509Authority(initial.Cert)
	p.bundle.RemoveX509Authority(last.Cert)
	if err := try(t, s); err != nil {
		t.Fatal(err)
	}
	if err := try(t, s); err == nil {
		t.Error("a root that was dropped still verifies")
	}
}

func TestServerCanBeInOtherKnownTrustDomain(t *testing.T) {
	const id = "spiffe://own.example/bundle-server"
	own, root := newRoot(t, "own"), newRoot(t, "root")
	certificate := serverOf(t, own, id)
	p := publish(t, &certificate, root.Cert)
	roots := func(name string) *pki.Bundle {
		if name == "own.example" {
			return pki.NewBundle(own.Cert)
		}
		return nil
	}
	s := mustSource(t, Options{Roots: roots}, Endpoint{TrustDomain: "example.org", URL: p.URL, ServerID: id})
	if err := try(t, s); err != nil || s.Bundle("example.org").Len() != 1 || s.Bundle("own.example").Len() != 1 {
		t.Errorf("%d roots, %v", s.Bundle("example.org").Len(), err)
	}
}

func TestFailingEndpointKeepsKnownRoots(t *testing.T) {
	root := newRoot(t, "root")
	p := publish(t, nil, root.Cert)
	elsewhere := publish(t, nil, root.Cert)
	s := mustSource(t, Options{}, Endpoint{TrustDomain: "example.org", URL: p.URL, RootFile: p.rootFile(t)})
	if err := try(t, s); err != nil {
		t.Fatal(err)
	}
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"an error": {http.NotFound, "status 404"},
		"an error with keys": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(`{"keys":[]}`))
		}, "status 500"},
		"no JSON":               {text("<html>\x1b"), "unable to parse"},
		"no keys":               {text("{}"), "no authorities found"},
		"go-spiffe's empty one": {text(`{"keys":null}`), "no authorities found"},
		"two certificates":      {text(`{"keys":[{"use":"x509-svid","kty":"EC","crv":"P-256","x":"AA","y":"AA","x5c":["AA==","AA=="]}]}`), "unable to parse"},
		"too long":              {text(strings.Repeat(" ", 1<<20) + "{}"), "more than 1048576 bytes"},
		"a redirect to another": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "redirects elsewhere"},
	} {
		p.answer(test.handler)
		err := try(t, s)
		if err == nil || !strings.Contains(err.Error(), test.says) || s.Bundle("example.org").Len() != 1 {
			t.Errorf("%s: %d roots, %v", name, s.Bundle("example.org").Len(), err)
		}
		if status := s.Status()[0]; status.Problem == "" || len(status.Problem) > 256 || strings.Contains(status.Problem, "\x1b") || status.Fetched.IsZero() || status.Roots != 1 {
			t.Errorf("%s: %+v", name, status)
		}
	}
	if n := elsewhere.asked.Load(); n != 0 {
		t.Errorf("another server was asked %d times", n)
	}
}

func TestTrustDomainCanRevokeAllRoots(t *testing.T) {
	root := newRoot(t, "root")
	leaf := newIssuer(t, root, &x509.Certificate{SerialNumber: big.NewInt(3), KeyUsage: x509.KeyUsageDigitalSignature})
	p := publish(t, nil, root.Cert, leaf.Cert)
	s := mustSource(t, Options{}, Endpoint{TrustDomain: "example.org", URL: p.URL, RootFile: p.rootFile(t)})
	if err := try(t, s); err != nil || !s.Bundle("example.org").Equal(pki.NewBundle(root.Cert)) {
		t.Errorf("%d roots, %v", s.Bundle("example.org").Len(), err)
	}
	p.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) })
	if err := try(t, s); err != nil || s.Bundle("example.org").Len() != 0 {
		t.Errorf("revoked: %d roots, %v", s.Bundle("example.org").Len(), err)
	}
}

// The first answer counts even where it confirms the initial roots: callers may treat those as out of date.
func TestFirstAnswerIsReportedThoughItConfirmsTheInitialRoots(t *testing.T) {
	root := newRoot(t, "root")
	p := publish(t, nil, root.Cert)
	var changed []string
	s := mustSource(t, Options{Changed: func(trustDomain string) { changed = append(changed, trustDomain) }},
		Endpoint{TrustDomain: "example.org", URL: p.URL, RootFile: p.rootFile(t), Initial: pki.NewBundle(root.Cert)})
	answered := func(want bool, roots, calls int) {
		t.Helper()
		if got, ok := s.Answered("example.org"); ok != want || got.Len() != roots || len(changed) != calls {
			t.Errorf("answered: %t with %d roots, reported %q", ok, got.Len(), changed)
		}
	}
	answered(false, 1, 0)
	p.answer(http.NotFound)
	_ = try(t, s)
	answered(false, 1, 0)
	p.handler.Store(nil)
	for range 2 { // the second changes nothing
		if err := try(t, s); err != nil {
			t.Fatal(err)
		}
		answered(true, 1, 1)
	}
	p.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) })
	if err := try(t, s); err != nil {
		t.Fatal(err)
	}
	answered(true, 0, 2)
	if _, ok := s.Answered("other.example"); ok {
		t.Error("a trust domain without an endpoint has answered")
	}
}

// A partner needs no private key to have others check signatures with a dear one. The other roots
// of the bundle are taken.
func TestRootWithAnExpensiveKeyIsLeftOut(t *testing.T) {
	root := newRoot(t, "root")
	for want, key := range map[string]*rsa.PublicKey{
		"key 2 of the bundle has an RSA key of 8193 bits": certtest.CostlyKey(8193, 65537),
		"a public exponent of more":                       certtest.CostlyKey(2048, 1<<32+1),
		"":                                                certtest.CostlyKey(8192, 65537),
	} {
		dear, err := x509.ParseCertificate(certtest.Costly(t, key))
		if err != nil {
			t.Fatal(err)
		}
		content, err := spiffebundle.FromX509Authorities(example, []*x509.Certificate{root.Cert, dear}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse("example.org", content)
		if err != nil || !got.roots.Contains(root.Cert) || got.roots.Contains(dear) != (want == "") || !strings.Contains(got.useless, want) {
			t.Errorf("want %q, got %q, %v", want, got.useless, err)
		}
		content, err = spiffebundle.FromX509Authorities(example, []*x509.Certificate{dear}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parse("example.org", content); (err == nil) != (want == "") {
			t.Errorf("alone: %d roots, %v", got.roots.Len(), err) // which would revoke all
		}
	}
}

func TestNewRootArrivesBesideOneThatGoCannotRead(t *testing.T) {
	root := newRoot(t, "root")
	content, err := spiffebundle.FromX509Authorities(example, []*x509.Certificate{root.Cert}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const bad = `{"use":"x509-svid","kty":"EC","crv":"brainpoolP256r1","x":"AA","y":"AA","x5c":["MAA="]}`
	got, err := parse("example.org", []byte(strings.Replace(string(content), "[", "["+bad+",", 1)))
	if err != nil || !got.roots.Equal(pki.NewBundle(root.Cert)) || got.useless != "key 1 of the bundle is malformed" || got.passedOver != 1 {
		t.Errorf("%d roots, %q, %v", got.roots.Len(), got.useless, err)
	}
}

// A partner adds keys of a kind that this version does not know: its next root must arrive all the same.
func TestKeyThatIsNotUnderstoodHoldsNoRootBack(t *testing.T) {
	root, other := newRoot(t, "root"), newRoot(t, "other")
	good := marshal(t, root)
	malformed := strings.Replace(jwkOf(marshal(t, other)), `"x":"`, `"x":"AA`, 1)
	const point = `"crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"`
	for name, key := range map[string]string{
		"key type":         `{"use":"jwt-svid","kid":"a","kty":"AKP","alg":"ML-DSA-65","pub":"AA"}`,
		"curve":            `{"use":"jwt-svid","kid":"a","kty":"OKP","crv":"Ed448","x":"AA"}`,
		"no key ID":        `{"use":"jwt-svid","kty":"EC",` + point + `}`,
		"WIT, no key ID":   `{"use":"wit-svid","kty":"EC",` + point + `}`,
		"use and key type": `{"use":"future-svid","kty":"future"}`,
		"no key type":      `{"use":"x509-svid"}`,
		"no certificate":   `{"use":"x509-svid","kty":"EC",` + point + `}`,
		"malformed key":    malformed,
		"null":             `null`,
	} {
		got, err := parse("example.org", []byte(strings.Replace(good, "[", "["+key+",", 1)))
		if err != nil || !got.roots.Equal(pki.NewBundle(root.Cert)) || got.passedOver != 1 || !strings.Contains(got.useless, "key 1 of the bundle") {
			t.Errorf("%s: %d roots, %q, %v", name, got.roots.Len(), got.useless, err)
		}
	}
	// Reading each of very many keys would cost more than they are worth.
	if _, err := parse("example.org", []byte(`{"keys":[`+strings.Repeat("{},", maxKeyCount)+"{}]}")); err == nil {
		t.Error("no error of very many keys")
	}
	// A bundle without a root that can be read does not revoke all. A trust domain may have JWT-SVIDs alone.
	for key, revokes := range map[string]bool{`{"use":"x509-svid","kty":"AKP"}`: false, `{"use":"jwt-svid","kid":"a","kty":"AKP"}`: true} {
		if _, err := parse("example.org", []byte(`{"keys":[`+key+`]}`)); (err == nil) != revokes {
			t.Errorf("%s alone: %v", key, err)
		}
	}
}

func marshal(t *testing.T, roots ...*certtest.Pair) string {
	t.Helper()
	bundle := spiffebundle.New(example)
	for _, root := range roots {
		bundle.AddX509Authority(root.Cert)
	}
	content, err := bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// jwkOf returns the only key of a bundle.
func jwkOf(bundle string) string {
	return bundle[strings.Index(bundle, "[")+1 : strings.LastIndex(bundle, "]")]
}

func TestRefreshHintIsBounded(t *testing.T) {
	for hint, want := range map[string]time.Duration{
		"":                               defaultRefresh,
		`,"spiffe_refresh_hint":0`:       defaultRefresh,
		`,"spiffe_refresh_hint":-5`:      defaultRefresh,
		`,"spiffe_refresh_hint":1`:       minRefresh,
		`,"spiffe_refresh_hint":600`:     10 * time.Minute,
		`,"spiffe_refresh_hint":2419200`: maxRefresh,
	} {
		got, err := parse("example.org", []byte(`{"keys":[]`+hint+`}`))
		if err != nil || got.refresh != want {
			t.Errorf("%s: %s, %v", hint, got.refresh, err)
		}
	}
	for _, seconds := range []string{"9223372036854775807", "-9223372036854775000", "9223372037", "18446744074"} { // as a Duration they wrap round
		got, err := parse("example.org", []byte(`{"keys":[],"spiffe_refresh_hint":`+seconds+`}`))
		if err != nil || got.refresh < minRefresh || got.refresh > maxRefresh {
			t.Errorf("%s: %s, %v", seconds, got.refresh, err)
		}
	}
}

func TestBundleIsRefreshedByHintAndSoonerAfterFailure(t *testing.T) {
	root := newRoot(t, "root")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var times []time.Duration
		var changed atomic.Int32
		began := time.Now()
		s := mustSource(t, Options{Changed: func(string) { changed.Add(1) }}, Endpoint{TrustDomain: "example.org", URL: "https://example.org"})
		s.domains["example.org"].fetch = func(context.Context) (published, error) {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Since(began))
			if n := len(times); n == 2 || n == 3 {
				return published{}, errors.New("down")
			}
			return published{roots: pki.NewBundle(root.Cert), refresh: 10 * time.Minute}, nil
		}
		stop := background.Run(s.Run)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		stop()
		waits := []time.Duration{0, 10 * time.Minute, firstRetry, 2 * firstRetry}
		if len(times) != 5 && len(times) != 4 {
			t.Fatalf("fetched at %v", times)
		}
		for i, want := range waits {
			last := time.Duration(0)
			if i > 0 {
				last = times[i-1]
			}
			if got := times[i] - last; got > want*5/4 || got < want*3/4 {
				t.Errorf("fetch %d came after %s, want %s", i, got, want)
			}
		}
		if n := changed.Load(); n != 1 {
			t.Errorf("notified of %d changes", n)
		}
	})
}

// However seldom a bundle asks to be refreshed, an endpoint that was away for hours is asked soon.
func TestFailedEndpointIsAskedEveryTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustSource(t, Options{Log: slog.New(slog.DiscardHandler)}, Endpoint{TrustDomain: "example.org", URL: "https://example.org"})
		var asked []time.Time
		s.domains["example.org"].fetch = func(context.Context) (published, error) {
			if asked = append(asked, time.Now()); len(asked) == 1 {
				return published{roots: pki.NewBundle(), refresh: maxRefresh}, nil
			}
			return published{}, errors.New("away")
		}
		stop := background.Run(s.Run)
		time.Sleep(3 * maxRefresh)
		stop()
		for i := 2; i < len(asked); i++ {
			if wait := asked[i].Sub(asked[i-1]); wait > 10*time.Minute {
				t.Fatalf("asked again after %s", wait)
			}
		}
		if len(asked) < 200 {
			t.Errorf("asked %d times", len(asked))
		}
	})
}

// The monotonic clock stands still while the machine is suspended.
func TestRefreshIsDueByTheWallClock(t *testing.T) {
	for name, follow := range map[string]func(s *Source) func(context.Context){
		"source": func(s *Source) func(context.Context) { return s.Run },
		"authority": func(s *Source) func(context.Context) {
			return func(ctx context.Context) {
				_ = s.Authority("example.org").WatchRoots(ctx, func([]byte) error { return nil })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := mustSource(t, Options{}, Endpoint{TrustDomain: "example.org", URL: "https://example.org"})
				var asked atomic.Int32
				var suspended atomic.Int64
				s.wall = func() time.Time { return time.Now().Round(0).Add(time.Duration(suspended.Load())) }
				s.domains["example.org"].fetch = func(context.Context) (published, error) {
					asked.Add(1)
					return published{roots: pki.NewBundle(), refresh: maxRefresh}, nil
				}
				stop := background.Run(follow(s))
				defer stop()
				time.Sleep(time.Second)
				suspended.Store(int64(maxRefresh))
				time.Sleep(time.Minute)
				if n := asked.Load(); n != 2 {
					t.Errorf("asked %d times", n)
				}
			})
		})
	}
}

func TestRunEndsWhileEndpointHangs(t *testing.T) {
	p := publish(t, nil)
	arrived := make(chan struct{}, 1)
	p.answer(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	s := mustSource(t, Options{}, Endpoint{TrustDomain: "example.org", URL: p.URL, RootFile: p.rootFile(t)})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	<-arrived
	end()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("it still runs")
	}
}

func TestWrongSettingsAreOneSentence(t *testing.T) {
	good := Endpoint{TrustDomain: "example.org", URL: "https://example.org/bundle"}
	root := pki.NewBundle(newRoot(t, "root").Cert)
	for name, test := range map[string]struct {
		endpoints []Endpoint
		says      string
	}{
		"two":                {[]Endpoint{good, good}, "duplicate trust domain"},
		"no trust domain":    {[]Endpoint{{URL: good.URL}}, "trust domain"},
		"an ID for a domain": {[]Endpoint{{TrustDomain: "spiffe://example.org", URL: good.URL}}, "trust domain"},
		"http":               {[]Endpoint{{TrustDomain: "example.org", URL: "http://127.0.0.1/"}}, "is not https"},
		"no server ID":       {[]Endpoint{{TrustDomain: "example.org", URL: good.URL, ServerID: "server"}}, `invalid SPIFFE ID "server"`},
		"no initial roots":   {[]Endpoint{{TrustDomain: "example.org", URL: good.URL, ServerID: "spiffe://example.org/s"}}, "no source of roots"},
		"a stranger's":       {[]Endpoint{{TrustDomain: "example.org", URL: good.URL, ServerID: "spiffe://other.example/s", Initial: root}}, "no source of roots"},
		"both profiles":      {[]Endpoint{{TrustDomain: "example.org", URL: good.URL, ServerID: "spiffe://example.org/s", Initial: root, RootFile: "/x"}}, "root file applies only to https_web"},
	} {
		if _, err := New(test.endpoints, Options{}); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New([]Endpoint{good}, Options{}); err != nil {
		t.Error(err)
	}
}

func FuzzBundle(f *testing.F) {
	text, err := spiffebundle.FromX509Authorities(example, []*x509.Certificate{newRoot(f, "root").Cert}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"keys":[],"spiffe_refresh_hint":1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := parse("example.org", content)
		if err == nil && (got.roots == nil || got.refresh < minRefresh || got.refresh > maxRefresh) {
			t.Errorf("%+v", got)
		}
		for _, root := range got.roots.Certificates() {
			if !root.IsCA {
				t.Errorf("a root that is no CA: %v", root.Subject)
			}
		}
	})
}
