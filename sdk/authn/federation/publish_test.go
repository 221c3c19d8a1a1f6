package federation

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const jwks = `{"keys":[{"kty":"EC","kid":"one","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`

// kept is a Numbered in memory.
type kept struct {
	number uint64
	digest string
	broken error
}

func (k *kept) Last(context.Context) (uint64, string, error) { return k.number, k.digest, k.broken }

func (k *kept) Store(_ context.Context, number uint64, digest string) error {
	if k.broken == nil {
		k.number, k.digest = number, digest
	}
	return k.broken
}

// content is what a publication has.
type content struct {
	roots *pki.Bundle
	jwks  string
	err   error
}

func (c *content) get(context.Context) (roots, keys []byte, err error) {
	if c.jwks != "" {
		keys = []byte(c.jwks)
	}
	return c.roots.PEM(), keys, c.err
}

func mustPublisher(t testing.TB, c *content, change func(*Publication)) *Publisher {
	t.Helper()
	p := Publication{TrustDomain: "example.org", Content: c.get, Profile: Web, Now: func() time.Time { return time.Unix(1_000, 0) }}
	if change != nil {
		change(&p)
	}
	out, err := NewPublisher(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func get(p http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// sequence returns that of the document, which go-spiffe must accept.
func sequence(t testing.TB, w *httptest.ResponseRecorder) uint64 {
	t.Helper()
	bundle, err := spiffebundle.Parse(example, w.Body.Bytes())
	if err != nil {
		t.Fatalf("status %d, %q: %v", w.Code, w.Body, err)
	}
	number, _ := bundle.SequenceNumber()
	return number
}

func TestPublisherServesBundleThatGoSPIFFEReads(t *testing.T) {
	root := newRoot(t, "root")
	c := &content{roots: pki.NewBundle(root.Cert), jwks: jwks}
	w := get(mustPublisher(t, c, nil), "/")
	bundle, err := spiffebundle.Parse(example, w.Body.Bytes())
	if err != nil || !bundle.HasX509Authority(root.Cert) || len(bundle.JWTAuthorities()) != 1 {
		t.Fatalf("%s: %v", w.Body, err)
	}
	if hint, ok := bundle.RefreshHint(); !ok || hint != defaultRefresh || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("refresh hint %s, headers %v", hint, w.Header())
	}
	// A reader of one's own: the same content as was published.
	got, err := parse("example.org", w.Body.Bytes())
	if err != nil || !got.roots.Equal(c.roots) || len(got.jwks) < 50 || got.refresh != defaultRefresh {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestKeysOfWITsArePublishedWithTheirUse(t *testing.T) {
	both := strings.Replace(jwks, `[`, `[{"use":"wit-svid",`+jwks[len(`{"keys":[{`):strings.Index(jwks, "]")]+",", 1)
	w := get(mustPublisher(t, &content{roots: pki.NewBundle(newRoot(t, "root").Cert), jwks: both}, nil), "/")
	bundle, err := spiffebundle.Parse(example, w.Body.Bytes())
	if err != nil || len(bundle.JWTAuthorities()) != 1 || len(bundle.WITAuthorities()) != 1 {
		t.Fatalf("%s: %v", w.Body, err)
	}
}

func TestSequenceNumberNeverGoesBack(t *testing.T) {
	one, two := newRoot(t, "one"), newRoot(t, "two")
	c, k := &content{roots: pki.NewBundle(one.Cert)}, &kept{}
	numbered := func(p *Publication) { p.Numbered = k }
	p := mustPublisher(t, c, numbered)
	first := sequence(t, get(p, "/"))
	if first != 1_000 || sequence(t, get(p, "/")) != first {
		t.Errorf("the first number is %d, or the same content has two", first)
	}
	c.roots = pki.NewBundle(one.Cert, two.Cert)
	second := sequence(t, get(p, "/"))
	c.roots = pki.NewBundle(two.Cert, one.Cert)
	if same := sequence(t, get(p, "/")); second != first+1 || same != second {
		t.Errorf("numbers %d, %d, %d: another order of the same roots must keep the number", first, second, same)
	}
	// A new run, whose clock went back: first with the same content, then with another.
	earlier := func(p *Publication) { p.Numbered, p.Now = k, func() time.Time { return time.Unix(10, 0) } }
	p = mustPublisher(t, c, earlier)
	if n := sequence(t, get(p, "/")); n != second {
		t.Errorf("the same content has the number %d after a restart, previously %d", n, second)
	}
	c.jwks = jwks
	if n := sequence(t, get(p, "/")); n != second+1 {
		t.Errorf("the number is %d after %d", n, second)
	}
}

// What is not known is not published as if there were none, and comes without a restart.
func TestUnknownContentIsUnavailable(t *testing.T) {
	root := newRoot(t, "root")
	c, k := &content{roots: pki.NewBundle(root.Cert), err: errors.New("secret")}, &kept{broken: errors.New("disk")}
	p := mustPublisher(t, c, func(p *Publication) { p.Numbered = k })
	if w := get(p, "/"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
	c.err = nil
	if w := get(p, "/"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d without the number of the last run", w.Code)
	}
	k.number, k.broken = 5_000, nil
	if n := sequence(t, get(p, "/")); n != 5_001 {
		t.Errorf("the number is %d after 5000", n)
	}
}

// The page and the client show status 503 alone: the log has the reason, once however many clients ask.
func TestReasonOfUnavailableBundleIsLoggedOnce(t *testing.T) {
	var log logtest.Log
	c := &content{roots: pki.NewBundle(newRoot(t, "root").Cert), err: errors.New("the CA is away")}
	p := mustPublisher(t, c, func(p *Publication) { p.Log = log.Logger() })
	logs := func(want int, line string) {
		t.Helper()
		for range 3 {
			get(p, "/")
		}
		if n := strings.Count(log.String(), line); n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", line, n, want, &log)
		}
	}
	logs(1, `trust_domain=example.org error="the CA is away"`)
	c.err = errors.New("the keys\nare away")
	logs(1, `error="the keys\\nare away"`)
	c.err = nil
	logs(1, "published again")
	c.err = errors.New("the CA is away")
	logs(2, "the CA is away")
	p.Content = func(ctx context.Context) ([]byte, []byte, error) { return nil, nil, ctx.Err() }
	ctx, leave := context.WithCancel(t.Context())
	leave()
	p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	if strings.Contains(log.String(), "canceled") {
		t.Errorf("a client that leaves is logged:\n%s", &log)
	}
}

// Of several servers, one that has no roots of its own publishes nothing before another has: why it has
// none is the reason then.
func TestReasonWithoutAnySharedBundleIsLogged(t *testing.T) {
	var log logtest.Log
	p := mustPublisher(t, &content{err: errors.New("the CA is away")}, func(p *Publication) {
		p.Log = log.Logger()
		p.Shared = func(context.Context, *pki.Bundle, uint64) (*pki.Bundle, uint64, error) {
			return nil, 0, errors.New("none yet")
		}
	})
	if w := get(p, "/"); w.Code != http.StatusServiceUnavailable || !strings.Contains(log.String(), "none yet: the CA is away") {
		t.Errorf("status %d\n%s", w.Code, &log)
	}
}

// A trust anchor may be a CA certificate that another CA has signed.
func TestTrustAnchorThatIsNotSelfSignedIsPublished(t *testing.T) {
	between := newIssuer(t, newRoot(t, "root"), &x509.Certificate{
		SerialNumber: big.NewInt(4), Subject: pkix.Name{CommonName: "between"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	c := &content{roots: pki.NewBundle(between.Cert)}
	got, err := parse("example.org", get(mustPublisher(t, c, nil), "/").Body.Bytes())
	if err != nil || !got.roots.Equal(c.roots) {
		t.Errorf("%d roots, %v", got.roots.Len(), err)
	}
}

// A server without roots of its own publishes what the others have recorded: the client would drop what it
// has on an error of this one.
func TestServerThatDoesNotKnowItsRootsPublishesThoseOfTheOthers(t *testing.T) {
	recorded, own := pki.NewBundle(newRoot(t, "recorded").Cert), pki.NewBundle(newRoot(t, "own").Cert)
	var given []*pki.Bundle
	c := &content{roots: own, err: errors.New("unknown")}
	p := mustPublisher(t, c, func(p *Publication) {
		p.Shared = func(_ context.Context, own *pki.Bundle, _ uint64) (*pki.Bundle, uint64, error) {
			given = append(given, own)
			return recorded, 7, nil
		}
	})
	for range 2 {
		w := get(p, "/")
		if got, err := parse("example.org", w.Body.Bytes()); err != nil || !got.roots.Equal(recorded) || sequence(t, w) != 7 {
			t.Fatalf("status %d, %d roots, %v", w.Code, got.roots.Len(), err)
		}
		c.err = nil
	}
	if len(given) != 2 || given[0] != nil || !given[1].Equal(own) {
		t.Errorf("it was given %v", given)
	}
}

// Roots that another writer has replaced below the same number are other content.
func TestTagIsThatOfTheContent(t *testing.T) {
	recorded := pki.NewBundle(newRoot(t, "one").Cert)
	p := mustPublisher(t, &content{roots: recorded}, func(p *Publication) {
		p.Shared = func(context.Context, *pki.Bundle, uint64) (*pki.Bundle, uint64, error) { return recorded, 7, nil }
	})
	tag := get(p, "/").Header().Get("ETag")
	recorded = pki.NewBundle(newRoot(t, "two").Cert)
	if w := get(p, "/", "If-None-Match", tag); w.Code != http.StatusOK || w.Header().Get("ETag") == tag {
		t.Errorf("status %d with the tag %s", w.Code, w.Header().Get("ETag"))
	}
}

// Else a request that was held up would publish what it has read long ago, with a later number.
func TestContentIsReadByOneRequestAtATime(t *testing.T) {
	root := newRoot(t, "root")
	var p *Publisher
	calls := 0
	c := &content{roots: pki.NewBundle(root.Cert)}
	p = mustPublisher(t, c, func(pub *Publication) {
		pub.Content = func(ctx context.Context) ([]byte, []byte, error) {
			if calls++; p.mu.TryLock() {
				t.Error("another request could publish now")
				p.mu.Unlock()
			}
			return c.get(ctx)
		}
	})
	if get(p, "/"); calls != 1 {
		t.Errorf("read %d times", calls)
	}
}

func TestUnchangedBundleIsNotSentAgain(t *testing.T) {
	root := newRoot(t, "root")
	c := &content{roots: pki.NewBundle(root.Cert)}
	p := mustPublisher(t, c, nil)
	tag := get(p, "/").Header().Get("ETag")
	if w := get(p, "/", "If-None-Match", tag); tag == "" || w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("tag %q: status %d with %d bytes", tag, w.Code, w.Body.Len())
	}
	c.jwks = jwks
	if w := get(p, "/", "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("status %d after a change", w.Code)
	}
}

func TestDiscoveryDocumentNamesTheEndpoint(t *testing.T) {
	c := &content{roots: pki.NewBundle(newRoot(t, "root").Cert)}
	p := mustPublisher(t, c, func(p *Publication) { p.URL, p.Profile = "https://example.org:8443/bundle.json", SPIFFE })
	var got map[string]string
	if err := json.Unmarshal(get(p, endpoint.BundleDiscovery).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got["spiffe_trust_domain_name"] != "example.org" || got["spiffe_bundle_endpoint_uri"] != p.URL || got["spiffe_bundle_endpoint_profile"] != SPIFFE {
		t.Errorf("%v", got)
	}
	for path, want := range map[string]int{"/bundle.json": http.StatusOK, "/": http.StatusNotFound, "/bundle.json/": http.StatusNotFound} {
		if w := get(p, path); w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/bundle.json", strings.NewReader("x")))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", w.Code)
	}
}

func TestWrongPublicationIsRefused(t *testing.T) {
	c := &content{roots: pki.NewBundle()}
	for name, change := range map[string]func(*Publication){
		"trust domain": func(p *Publication) { p.TrustDomain = "spiffe://a/b" },
		"content":      func(p *Publication) { p.Content = nil },
		"profile":      func(p *Publication) { p.Profile = "http" },
		"http":         func(p *Publication) { p.URL = "http://example.org/" },
		"query":        func(p *Publication) { p.URL = "https://example.org/?a=b" },
		"discovery":    func(p *Publication) { p.URL = "https://example.org" + endpoint.BundleDiscovery },
	} {
		p := Publication{TrustDomain: "example.org", Content: c.get, Profile: Web}
		change(&p)
		if _, err := NewPublisher(p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
