package federation

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// scripted is the Authority of example.org, whose endpoint gives these answers, one after the
// other, and the last one again and again.
func scripted(t *testing.T, opts Options, initial *pki.Bundle, answers ...any) (*Authority, *int) {
	t.Helper()
	s := mustSource(t, opts, Endpoint{TrustDomain: "example.org", URL: "https://localhost", Initial: initial})
	asked := new(int)
	s.domains["example.org"].fetch = func(context.Context) (published, error) {
		next := answers[min(*asked, len(answers)-1)]
		*asked++
		if err, ok := next.(error); ok {
			return published{}, err
		}
		return next.(published), nil
	}
	return s.Authority("example.org"), asked
}

// watch returns the sets that the authority has told within an hour, as fingerprints, and how the
// watch ended.
func watch(t *testing.T, a *Authority) (sets []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("over"))
	defer cancel()
	err = a.WatchRoots(ctx, func(pem []byte) error {
		if len(pem) == 0 {
			sets = append(sets, "none")
			return nil
		}
		roots, err := pki.ParseBundle(pem)
		sets = append(sets, strings.Join(roots.Fingerprints(), " "))
		return err
	})
	return sets, err
}

func TestAuthoritySendsRootsAtEachRefresh(t *testing.T) {
	one, two := pki.NewBundle(newRoot(t, "one").Cert), pki.NewBundle(newRoot(t, "two").Cert)
	synctest.Test(t, func(t *testing.T) {
		a, asked := scripted(t, Options{}, nil, published{roots: one, refresh: 40 * time.Minute}, published{roots: two, refresh: 40 * time.Minute})
		began := time.Now()
		sets, err := watch(t, a)
		if len(sets) != 2 || sets[0] != one.Fingerprints()[0] || sets[1] != two.Fingerprints()[0] || err == nil || err.Error() != "over" {
			t.Errorf("notified %q, %v", sets, err)
		}
		if *asked != 2 || time.Since(began) != time.Hour {
			t.Errorf("asked %d times in %s", *asked, time.Since(began))
		}
	})
}

func TestFailedEndpointEndsTheWatchAndKeepsTheRoots(t *testing.T) {
	initial, root := pki.NewBundle(newRoot(t, "initial").Cert), pki.NewBundle(newRoot(t, "root").Cert)
	away := errors.New("connection refused")
	synctest.Test(t, func(t *testing.T) {
		a, asked := scripted(t, Options{}, initial, away, away, published{roots: root, refresh: 40 * time.Minute}, away)
		for attempt, want := range []string{initial.Fingerprints()[0], "", root.Fingerprints()[0], ""} {
			sets, err := watch(t, a)
			if got := strings.Join(sets, ","); got != want || !errors.Is(err, ca.ErrUnavailable) {
				t.Errorf("attempt %d told %q, %v", attempt, got, err)
			}
			if status := a.source.Status()[0]; status.Problem != "connection refused" || status.Roots != 1 {
				t.Errorf("%+v", status)
			}
		}
		if *asked != 5 {
			t.Errorf("asked %d times", *asked)
		}
	})
}

// The caller serves the roots of an earlier run, and would replace them by the initial ones, which may be
// long gone.
func TestInitialRootsDoNotReplaceThoseOfAnEarlierRun(t *testing.T) {
	initial, kept := pki.NewBundle(newRoot(t, "initial").Cert), pki.NewBundle(newRoot(t, "kept").Cert)
	synctest.Test(t, func(t *testing.T) {
		opts := Options{Kept: func(string) *pki.Bundle { return kept }}
		a, _ := scripted(t, opts, initial, errors.New("connection refused"))
		if sets, _ := watch(t, a); len(sets) != 0 {
			t.Errorf("notified %q", sets)
		}
	})
}

// A Manager refuses an empty set, says so, and serves the one before.
func TestRevokedRootsAreSentAsAnEmptySet(t *testing.T) {
	root, none := pki.NewBundle(newRoot(t, "root").Cert), pki.NewBundle()
	synctest.Test(t, func(t *testing.T) {
		a, _ := scripted(t, Options{}, nil, published{roots: none, refresh: 20 * time.Minute}, published{roots: root, refresh: 20 * time.Minute}, published{roots: none, refresh: 40 * time.Minute})
		if sets, _ := watch(t, a); len(sets) != 2 || sets[0] != root.Fingerprints()[0] || sets[1] != "none" {
			t.Errorf("notified %q", sets)
		}
	})
}

func TestRootsOfAnEarlierRunAreRevoked(t *testing.T) {
	kept := pki.NewBundle(newRoot(t, "kept").Cert)
	synctest.Test(t, func(t *testing.T) {
		opts := Options{Kept: func(string) *pki.Bundle { return kept }}
		a, _ := scripted(t, opts, nil, published{roots: pki.NewBundle(), refresh: 20 * time.Minute})
		if sets, _ := watch(t, a); len(sets) != 1 || sets[0] != "none" {
			t.Errorf("notified %q", sets)
		}
	})
}

// A Manager tells of the last failure until it hears something else.
func TestEmptyAnswerAfterAFailureIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := published{roots: pki.NewBundle(), refresh: 20 * time.Minute}
		a, _ := scripted(t, Options{}, nil, none, errors.New("connection refused"), none)
		for _, want := range []string{"", "none"} {
			if sets, _ := watch(t, a); strings.Join(sets, " ") != want {
				t.Errorf("notified %q, want %q", sets, want)
			}
		}
	})
}

func TestAuthorityTakesNoMoreThanItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := scripted(t, Options{}, nil, published{roots: pki.NewBundle(newRoot(t, "root").Cert), refresh: time.Minute})
		enough := errors.New("enough")
		if err := a.WatchRoots(t.Context(), func([]byte) error { return enough }); !errors.Is(err, enough) {
			t.Error(err)
		}
		if _, err := a.CSRSign(t.Context(), ca.SignRequest{}); !errors.Is(err, ca.ErrUnimplemented) {
			t.Error(err)
		}
		if a.source.Authority("other.example") != nil {
			t.Error("a trust domain without an endpoint has an authority")
		}
	})
}

func TestJWTKeysOfABundleAreSentAfterEachAnswer(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := publish(t, nil, newRoot(t, "root").Cert)
	var told []string
	opts := Options{JWTKeys: func(domain string, jwks []byte) { told = append(told, domain+" "+string(jwks)) }}
	s := mustSource(t, opts, Endpoint{TrustDomain: "example.org", URL: p.URL, RootFile: p.rootFile(t)})
	must := func() {
		t.Helper()
		if err := try(t, s); err != nil {
			t.Fatal(err)
		}
	}
	must()
	if err := p.bundle.AddJWTAuthority("one", key.Public()); err != nil {
		t.Fatal(err)
	}
	must()
	must()
	if len(told) != 3 || told[2] != told[1] || told[0] != `example.org {"keys":[]}` || !strings.Contains(told[1], `"kid":"one"`) || strings.Contains(told[1], `"x5c"`) || strings.Contains(told[1], `"use"`) {
		t.Errorf("notified %q", told)
	}
	p.answer(http.NotFound)
	if err := try(t, s); err == nil || len(told) != 3 {
		t.Errorf("notified %q, %v", told, err)
	}
}

func TestKeysOfWITsAreApartFromThoseOfJWTs(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := publish(t, nil, newRoot(t, "root").Cert)
	var jwts, wits string
	s := mustSource(t, Options{
		JWTKeys: func(_ string, jwks []byte) { jwts = string(jwks) }, WITKeys: func(domain string, jwks []byte) { wits = domain + " " + string(jwks) },
	}, Endpoint{TrustDomain: "example.org", URL: p.URL, RootFile: p.rootFile(t)})
	for _, add := range []func() error{func() error { return nil }, func() error { return p.bundle.AddWITAuthority("one", key.Public()) }} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
		before := wits
		if err := try(t, s); err != nil || jwts != `{"keys":[]}` || wits == before {
			t.Fatalf("JWTs %s, WITs %s, %v", jwts, wits, err)
		}
	}
	before := wits
	for i := range maxKeysOfTokens {
		if err := p.bundle.AddWITAuthority(fmt.Sprint(i), key.Public()); err != nil {
			t.Fatal(err)
		}
	}
	if err := try(t, s); err != nil || wits != before || s.Bundle("example.org").Len() != 1 {
		t.Errorf("too many keys of WIT-SVIDs: %v", err)
	}
	if !strings.HasPrefix(wits, "example.org {") || !strings.Contains(wits, `"kid":"one"`) || !strings.Contains(wits, `"use":"wit-svid"`) {
		t.Error(wits)
	}
}

func TestJWTKeysAreBoundedAndPublic(t *testing.T) {
	one := func(i int) string {
		return `{"use":"jwt-svid","kid":"` + strings.Repeat("k", i+1) + `","kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"`
	}
	private := `{"keys":[` + one(0) + `,"d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}]}`
	if got, err := parse("example.org", []byte(private)); err != nil || bytes.Contains(got.jwks, []byte("jpsQ")) || string(got.jwks) != `{"keys":[]}` {
		t.Errorf("a private key: %s, %v", got.jwks, err)
	}
	for bits, count := range map[int]int{2047: 0, 2048: 1, 8192: 1, 8193: 0} {
		bundle := spiffebundle.New(example)
		if err := bundle.AddJWTAuthority("dear", certtest.CostlyKey(bits, 65537)); err != nil {
			t.Fatal(err)
		}
		content, err := bundle.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parse("example.org", content); err != nil || strings.Count(string(got.jwks), "kid") != count {
			t.Errorf("a key of %d bits: %.40s, %v", bits, got.jwks, err)
		}
	}
	for n, works := range map[int]bool{maxKeysOfTokens: true, maxKeysOfTokens + 1: false} {
		var keys []string
		for i := range n {
			keys = append(keys, one(i)+"}")
		}
		if got, err := parse("example.org", []byte(`{"keys":[`+strings.Join(keys, ",")+`]}`)); (err == nil) != works || works && strings.Count(string(got.jwks), "kid") != n {
			t.Errorf("%d keys: %v", n, err)
		}
	}
}
