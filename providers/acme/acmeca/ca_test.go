package acmeca

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const www = "www.example.org"

func requestFor(t *testing.T, names ...string) ca.SignRequest {
	t.Helper()
	req, _ := testkit.Request(t, "", names...)
	return req
}

// certified signs a request and checks the reply as an agent does.
func certified(t *testing.T, c *CA, dnsNames ...string) *pki.Chain {
	t.Helper()
	req, key := testkit.Request(t, "", dnsNames...)
	reply, err := c.CSRSign(t.Context(), req)
	must(t, err)
	check := testkit.Check(t, req, key)
	check.AcceptLonger = true
	return testkit.Passes(t, reply, check)
}

func TestRequestThatACMECannotServeIsRefused(t *testing.T) {
	f := newFake(t)
	c := f.open(t, f.settings(t))
	spiffe, _ := testkit.Request(t, "spiffe://example.org/web", www)
	hidden := spiffe // whose CSR alone has the SPIFFE ID
	hidden.SubjectID = ""
	other := requestFor(t, "bank.example.com")
	other.DNSNames = []string{www}
	star := requestFor(t, "*.example.org")
	address := ca.SignRequest{IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	_, address.CSR = testkit.CSR(t, testkit.Identity(t, "", nil, []string{"192.0.2.7"}))
	for name, test := range map[string]struct {
		req  ca.SignRequest
		way  string
		says string
	}{
		"a SPIFFE ID":               {spiffe, HTTP01, "no SPIFFE IDs"},
		"a SPIFFE ID in the CSR":    {hidden, HTTP01, "other names"},
		"another name in the CSR":   {other, HTTP01, "other names"},
		"a wildcard by http-01":     {star, HTTP01, "only dns-01 proves it"},
		"a wildcard by tls-alpn-01": {star, TLSALPN01, "only dns-01 proves it"},
		"an address by dns-01":      {address, DNS01, "dns-01 does not prove it"},
		"no name":                   {ca.SignRequest{CSR: address.CSR}, HTTP01, "no names"},
		"no CSR":                    {ca.SignRequest{DNSNames: []string{www}}, HTTP01, "the CSR"},
	} {
		c.settings.Challenge = test.way
		if _, err := c.CSRSign(t.Context(), test.req); ca.ReasonFor(err) != ca.Invalid || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := f.seen("/"); n > 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestEachProblemHasItsReason(t *testing.T) {
	for kind, want := range map[string]ca.Reason{
		"rateLimited": ca.RateLimited, "unauthorized": ca.Denied, "caa": ca.Denied, "rejectedIdentifier": ca.Denied, "userActionRequired": ca.Denied,
		"externalAccountRequired": ca.Denied, "malformed": ca.Invalid, "badCSR": ca.Invalid, "badPublicKey": ca.Invalid, "invalidContact": ca.Invalid,
		"serverInternal": ca.Unavailable, "dns": ca.Unavailable, "connection": ca.Unavailable, "somethingNew": ca.Denied,
	} {
		f := newFake(t)
		f.fault = func(path string) *http.Response {
			if path != "/order" {
				return nil
			}
			return refusal(403, kind, "Retry-After", "90")
		}
		_, err := f.open(t, f.settings(t)).CSRSign(t.Context(), requestFor(t, www))
		if ca.ReasonFor(err) != want || !strings.Contains(err.Error(), "because") || ca.RetryAfter(err) != 90*time.Second {
			t.Errorf("%s: %v, after %s; want %s", kind, err, ca.RetryAfter(err), want)
		}
	}
}

// Let's Encrypt calls a page with 404 "unauthorized", and allows five failures an hour.
func TestFailedProofIsLeftAloneForAMinute(t *testing.T) {
	for _, kind := range []string{"incorrectResponse", "unauthorized"} {
		f := newFake(t)
		f.unproved = kind
		c := f.open(t, f.settings(t))
		f.fault = func(path string) *http.Response {
			if strings.HasPrefix(path, "/chall/") {
				clear(f.proofs) // as if another server answered
			}
			return nil
		}
		_, err := c.CSRSign(t.Context(), requestFor(t, www))
		if ca.ReasonFor(err) != ca.Unavailable || ca.RetryAfter(err) != time.Minute || !strings.Contains(err.Error(), "another server than this provider answered") {
			t.Errorf("%s: got %v, after %s", kind, err, ca.RetryAfter(err))
		}
	}
}

func TestLostAccountIsOpenedAgain(t *testing.T) {
	f := newFake(t)
	c := f.open(t, f.settings(t))
	certified(t, c, www)
	f.mu.Lock()
	clear(f.accounts)
	f.mu.Unlock()
	certified(t, c, www)
	if n := f.seen("/account"); n != 3 { // opened, asked for, opened
		t.Errorf("the server was asked for the account %d times", n)
	}
}

// Keys of external bindings are often good for one account: who has it removes them.
func TestExternalBindingIsForNewAccountsOnly(t *testing.T) {
	f := newFake(t)
	f.bend = func(path string, body map[string]any) {
		if path == "/dir" {
			body["meta"] = map[string]any{"externalAccountRequired": true}
		}
	}
	settings := f.settings(t)
	for range 2 { // without a key, and with that of an account that could not be opened
		c := f.open(t, settings)
		said := c.validateOnline(t.Context())
		_, err := c.CSRSign(t.Context(), requestFor(t, www))
		if ca.ReasonFor(err) != ca.Invalid || !strings.Contains(err.Error(), "eab is not set") || len(said) != 1 || said[0].Pointer != "/eab" {
			t.Errorf("a new account: %v, %v", err, said)
		}
	}
	bound := settings
	bound.EAB = EAB{"kid", strings.Repeat("c2VzYW1l", 6)}
	certified(t, f.open(t, bound), www)
	c := f.open(t, settings)
	if said := c.validateOnline(t.Context()); len(said) > 0 {
		t.Errorf("an account that is there: %v", said)
	}
	certified(t, c, www)
	if len(f.accounts) != 1 {
		t.Errorf("%d accounts", len(f.accounts))
	}
}

func TestRejectedNonceIsReplacedButNotForEver(t *testing.T) {
	f := newFake(t)
	c := f.open(t, f.settings(t))
	f.fault = func(path string) *http.Response {
		if path == "/order" {
			return refusal(400, "badNonce")
		}
		return nil
	}
	_, err := c.CSRSign(t.Context(), requestFor(t, www))
	if ca.ReasonFor(err) != ca.Unavailable || f.seen("/order") != maxAttempts {
		t.Errorf("got %v after %d attempts", err, f.seen("/order"))
	}
}

// A CA that accepts orders and finishes none is out of order: another one is to sign.
func TestOrderThatWasGivenUpIsPendingNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		settings := f.settings(t)
		settings.OrderTimeout = time.Minute
		c := f.open(t, settings)
		f.never = true
		req := requestFor(t, www)
		asked := func(req ca.SignRequest) ca.Reason {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := c.CSRSign(ctx, req)
			return ca.ReasonFor(err)
		}
		var got []ca.Reason
		for range 8 {
			got = append(got, asked(req))
		}
		want := []ca.Reason{ca.Pending, ca.Pending, ca.Pending, ca.Unavailable, ca.Unavailable, ca.Unavailable, ca.Unavailable, ca.Unavailable}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if other := asked(requestFor(t, "other.example.org")); other != ca.Pending {
			t.Errorf("another request: %v", other)
		}
		f.mu.Lock()
		f.never = false
		f.mu.Unlock()
		if _, err := c.CSRSign(t.Context(), req); err != nil {
			t.Error(err)
		}
		if len(c.overdue) != 0 {
			t.Errorf("remembered: %v", c.overdue)
		}
	})
}

// A CA that looks for the proofs at once, and asks for a pause when it is asked too early.
func TestFirstLookIsNotTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t, f.settings(t))
		f.takes, f.word = 50*time.Millisecond, "3"
		began := time.Now()
		certified(t, c, www)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the certificate took %s", took)
		}
	})
}

func TestRepeatsMakeOneCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		settings := f.settings(t)
		c := f.open(t, settings)
		f.never = true
		req, key := testkit.Request(t, "", www)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := c.CSRSign(ctx, req)
		if took := time.Since(begun); ca.ReasonFor(err) != ca.Pending || took != 29*time.Second || !strings.Contains(err.Error(), "still in progress") {
			t.Errorf("got %v after %s", err, took)
		}
		gone, goes := context.WithCancel(t.Context())
		goes()
		if _, err := c.CSRSign(gone, req); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled call: %v", err)
		}
		must(t, c.Close())
		if _, err := c.CSRSign(t.Context(), req); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("after Close: %v", err)
		}
		c = f.open(t, settings)
		replies := make(chan ca.Certificate)
		for range 3 {
			go func() {
				reply, err := c.CSRSign(t.Context(), req)
				if err != nil {
					t.Error(err)
				}
				replies <- reply
			}()
		}
		synctest.Wait()
		f.mu.Lock()
		f.never = false
		f.mu.Unlock()
		for range 3 {
			testkit.Passes(t, <-replies, pki.Check{Key: key.Public(), Identity: testkit.Identity(t, "", []string{www}, nil), Now: time.Now()})
		}
		if _, err := c.CSRSign(t.Context(), req); err != nil || len(f.orders) != 1 || f.seen("/fin/") != 1 {
			t.Errorf("%v; %d orders, %d certificates", err, len(f.orders), f.seen("/fin/"))
		}
		must(t, c.Close())
	})
}

func TestEndlessOrderIsGivenUp(t *testing.T) {
	for _, word := range []string{"", "31536000"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			settings := f.settings(t)
			settings.OrderTimeout = 5 * time.Minute
			c := f.open(t, settings)
			f.never, f.word = true, word
			begun := time.Now()
			_, err := c.CSRSign(t.Context(), requestFor(t, www))
			if ca.ReasonFor(err) != ca.Unavailable || time.Since(begun) != 5*time.Minute || !strings.Contains(err.Error(), "given up") {
				t.Errorf("got %v after %s", err, time.Since(begun))
			}
			if n := f.seen("/authz/"); n < 3 || n > 80 {
				t.Errorf("the server was asked %d times in 5 minutes", n)
			}
			if n := len(f.proofs); n > 0 {
				t.Errorf("%d answers are left", n)
			}
			must(t, c.Close())
		})
	}
}

// The first of two names could not be verified, and the server has not looked for the second yet.
func TestFailedOrderGivesBackWhatIsPending(t *testing.T) {
	for name, test := range map[string]struct {
		bend  func(f *fake, c *CA)
		given int
	}{
		"at once": {func(*fake, *CA) {}, 1},
		"not while another order runs, which may wait for it": {func(_ *fake, c *CA) { c.room <- struct{}{} }, 0},
		"as far as a slow server lets it": {func(f *fake, _ *CA) {
			f.fault = func(path string) *http.Response {
				if path == "/authz/0/0" && f.orders[0].tried {
					f.mu.Unlock() // other requests are served
					time.Sleep(deactivateTimeout + time.Second)
					f.mu.Lock()
				}
				return nil
			}
		}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			c := f.open(t, f.settings(t))
			test.bend(f, c)
			f.bend = func(path string, body map[string]any) {
				switch path {
				case "/authz/0/0":
					if f.orders[0].tried {
						body["status"] = "invalid"
					}
				case "/authz/0/1":
					body["status"] = "pending"
				}
			}
			begun := time.Now()
			_, err := c.CSRSign(t.Context(), requestFor(t, www, "ftp.example.org"))
			if ca.ReasonFor(err) != ca.Unavailable || !strings.Contains(err.Error(), "the proof of") || time.Since(begun) > 3*deactivateTimeout {
				t.Errorf("%s: got %v after %s", name, err, time.Since(begun))
			}
			if given := f.orders[0].given; len(given) != test.given || test.given == 1 && given[0] != 1 {
				t.Errorf("%s: %v were deactivated", name, given)
			}
			f.fault, f.bend = nil, nil
			certified(t, c, www, "ftp.example.org") // by another order
			must(t, c.Close())
		})
	}
}

// slowly takes answers away so slowly, one after the other, as a DNS command may.
type slowly struct {
	*fake
	takes time.Duration
	turn  chan struct{}
	kept  atomic.Int32
}

func (s *slowly) present(ctx context.Context, c challenge) (func(context.Context) error, error) {
	clean, _ := s.fake.present(ctx, c)
	return func(ctx context.Context) error {
		s.turn <- struct{}{}
		defer func() { <-s.turn }()
		if err := sleep(ctx, s.takes); err != nil {
			s.kept.Add(1)
			return err
		}
		return clean(ctx)
	}, nil
}

func TestSlowCleanupEndsAndCostsNoOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t, f.settings(t))
		slow := &slowly{fake: f, takes: orderTimeout, turn: make(chan struct{}, 1)}
		c.answers = slow
		_, err := c.CSRSign(t.Context(), requestFor(t, www, "ftp.example.org"))
		if err != nil || slow.kept.Load() > 0 || len(f.proofs) > 0 {
			t.Errorf("%v; %d cleanups were cut, %d answers are left", err, slow.kept.Load(), len(f.proofs))
		}
		req := requestFor(t, www)
		go func() { _, _ = c.CSRSign(t.Context(), req) }()
		synctest.Wait()
		time.Sleep(time.Minute) // it cleans
		begun := time.Now()
		must(t, c.Close())
		if took := time.Since(begun); took != cleanTimeout || slow.kept.Load() != 1 {
			t.Errorf("closing took %s, %d cleanups were cut", took, slow.kept.Load())
		}
	})
}

func TestFailureWaitsForTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t, f.settings(t))
		f.fault = func(path string) *http.Response {
			if path != "/order" {
				return nil
			}
			return refusal(429, "rateLimited", "Retry-After", "3600")
		}
		req := requestFor(t, www)
		gone, goes := context.WithCancel(t.Context())
		goes()
		_, _ = c.CSRSign(gone, req)
		synctest.Wait()
		if _, err := c.CSRSign(t.Context(), req); ca.RetryAfter(err) != time.Hour || f.seen("/order") != 1 {
			t.Errorf("got %v; %d orders", err, f.seen("/order"))
		}
		_, _ = c.CSRSign(t.Context(), req)
		if n := f.seen("/order"); n != 2 {
			t.Errorf("%d orders after one more call", n)
		}
		must(t, c.Close())
	})
}

// elsewhere bends one URL of an answer.
func elsewhere(at, field, to string) func(string, map[string]any) {
	return func(path string, body map[string]any) {
		if strings.HasPrefix(path, at) && body[field] != nil {
			body[field] = to
		}
	}
}

func TestLyingServerIsNotFollowed(t *testing.T) {
	for name, bend := range map[string]func(string, map[string]any){
		"a directory of another host":   elsewhere("/dir", "newOrder", "https://evil.example/order"),
		"a directory without TLS":       elsewhere("/dir", "newAccount", "http://ca.example/account"),
		"nonces of another port":        elsewhere("/dir", "newNonce", "https://ca.example:8443/nonce"),
		"an account elsewhere":          elsewhere("/account", "location", "https://evil.example/accounts/1"),
		"an order elsewhere":            elsewhere("/order", "location", "https://evil.example/order/1"),
		"an order without a place":      elsewhere("/order", "location", ""),
		"a certificate of another host": elsewhere("/fin/", "certificate", "https://evil.example/cert/1"),
		"a user in a URL":               elsewhere("/order", "finalize", "https://me@ca.example/fin/0"),
		"an authorization elsewhere": func(path string, body map[string]any) {
			if strings.HasPrefix(path, "/order") {
				body["authorizations"] = []string{"https://evil.example/authz"}
			}
		},
		"authorizations without end": func(path string, body map[string]any) {
			if strings.HasPrefix(path, "/order") {
				body["authorizations"] = make([]string, 10_000)
			}
		},
		"an order for another name": elsewhereNames,
		"a proof of another name": func(path string, body map[string]any) {
			if strings.HasPrefix(path, "/authz/") {
				body["identifier"] = name{dnsName, "bank.example.com"}
			}
		},
		"a token that is a path": func(path string, body map[string]any) {
			if strings.HasPrefix(path, "/authz/") {
				all := nested(body, "challenges")
				all[0]["token"] = "../../../../etc/cron.d/token"
				body["challenges"] = all
			}
		},
		"a status of its own": elsewhere("/order", "status", "perhaps"),
	} {
		f := newFake(t)
		f.bend = bend
		_, err := f.open(t, f.settings(t)).CSRSign(t.Context(), requestFor(t, www))
		if ca.ReasonFor(err) != ca.Internal {
			t.Errorf("%s: %v", name, err)
		}
		if n := f.seen("/cert/"); n > 0 {
			t.Errorf("%s: a certificate was taken", name)
		}
	}
}

func TestURLsOfTheSameServerAreFollowed(t *testing.T) {
	for configured, told := range map[string]map[string]bool{
		"https://ca.example/dir": {
			"https://ca.example/order": true, "https://ca.example:443/order": true, "https://CA.Example/order": true, "HTTPS://ca.example:/order": true,
			"https://ca.example:444/order": false, "https://ca.example./order": false, "https://ca.example:0443/order": false, "http://ca.example:443/order": false,
			"https://ca.example:443:443/order": false, "https://ca.example.org/order": false, "https://\u212aa.example/order": false, "//ca.example/order": false, "": false,
		},
		"https://KA.example:443/dir":  {"https://ka.example/order": true, "https://\u212aa.example/order": false},
		"https://ca.example:8443/dir": {"https://ca.example:8443/order": true, "https://ca.example/order": false, "https://ca.example:443/order": false},
		"https://[2001:DB8::1]/dir":   {"https://[2001:db8::1]:443/order": true, "https://[2001:db8::2]/order": false},
	} {
		s := &server{url: must2(url.Parse(configured))}
		for one, follows := range told {
			if _, err := s.at(one); (err == nil) != follows {
				t.Errorf("%s of %s: %v", one, configured, err)
			}
		}
	}
}

func elsewhereNames(path string, body map[string]any) {
	if strings.HasPrefix(path, "/order") {
		body["identifiers"] = []name{{dnsName, "bank.example.com"}}
	}
}

const pemHead = "-----BEGIN CERTIFICATE-----\n"

func TestWrongCertificateIsRefusedAndOrderedAnewLater(t *testing.T) {
	_, stranger := testkit.CSR(t, testkit.Identity(t, "", []string{www}, nil))
	for name, wrong := range map[string]func(f *fake, csr []byte) []byte{
		"another key": func(f *fake, _ []byte) []byte {
			return must2(f.ca.CSRSign(t.Context(), ca.SignRequest{CSR: stranger})).Chain
		},
		"a damaged one": func(*fake, []byte) []byte { return []byte(pemHead + "eA==\n-----END CERTIFICATE-----\n") },
		"its root":      func(f *fake, _ []byte) []byte { return f.ca.Bundle().PEM() },
		"much text":     func(*fake, []byte) []byte { return append([]byte(pemHead), bytes.Repeat([]byte("x"), 3<<20)...) },
	} {
		f := newFake(t)
		right := f.sign
		f.sign = func(csr []byte) []byte { return wrong(f, csr) }
		c := f.open(t, f.settings(t))
		req := requestFor(t, www)
		if _, err := c.CSRSign(t.Context(), req); ca.ReasonFor(err) != ca.Internal || ca.RetryAfter(err) != afterLie {
			t.Errorf("%s: %v, after %s", name, err, ca.RetryAfter(err))
		}
		f.sign = right
		if _, err := c.CSRSign(t.Context(), req); err != nil || len(f.orders) != 2 {
			t.Errorf("%s, then the right one: %v; %d orders", name, err, len(f.orders))
		}
	}
}

// A load balancer's page is no verdict on the order behind it, neither with a 500 nor with a 200.
func TestLostAnswersOfServerAreFoundAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for _, status := range []int{200, 500, 502} {
		for _, lost := range []string{"/fin/", "/cert/", "/authz/", "/chall/", "/order/"} {
			losesOne(t, lost, status)
		}
	}
}

func losesOne(t *testing.T, lost string, status int) {
	f := newFake(t)
	c := f.open(t, f.settings(t))
	once := true
	f.fault = func(path string) *http.Response {
		if !once || !strings.HasPrefix(path, lost) {
			return nil
		}
		once = false
		if lost == "/fin/" { // it was done all the same
			must(t, f.late(f.orders[0]))
		}
		return response(status, []byte("<html>"))
	}
	req, key := testkit.Request(t, "", www)
	f.csr = req.CSR
	if _, err := c.CSRSign(t.Context(), req); ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("%s with %d: %v", lost, status, err)
	}
	reply, err := c.CSRSign(t.Context(), req)
	must(t, err)
	testkit.Passes(t, reply, pki.Check{Key: key.Public(), Identity: testkit.Identity(t, "", []string{www}, nil), Now: time.Now()})
	if len(f.orders) != 1 {
		t.Errorf("%s with %d: %d orders", lost, status, len(f.orders))
	}
}

func TestOrderThatWasFinalizedBeforeIsFetched(t *testing.T) {
	f := newFake(t)
	c := f.open(t, f.settings(t))
	f.fault = func(path string) *http.Response {
		if !strings.HasPrefix(path, "/fin/") {
			return nil
		}
		must(t, f.late(f.orders[0]))
		return refusal(403, "orderNotReady")
	}
	req := requestFor(t, www)
	f.csr = req.CSR
	if _, err := c.CSRSign(t.Context(), req); err != nil || f.seen("/fin/") != 1 {
		t.Errorf("%v after %d attempts", err, f.seen("/fin/"))
	}
}

func TestSuccessorReplacesPredecessorUnlessServerRefuses(t *testing.T) {
	f := newFake(t)
	c := f.open(t, f.settings(t))
	first := certified(t, c, www)
	id, err := certID(first.Leaf)
	must(t, err)
	certified(t, c, www)
	certified(t, c, "other.example.org")
	if got := strings.Join(f.replaces, ","); got != ","+id+"," {
		t.Errorf("the orders replace %q, want the second to replace %s", got, id)
	}
	once := true
	f.fault = func(path string) *http.Response {
		if path != "/order" || !once {
			return nil
		}
		once = false
		return refusal(409, "alreadyReplaced")
	}
	certified(t, c, www)
	if last := f.replaces[len(f.replaces)-1]; last != "" {
		t.Errorf("after a refusal the order replaces %q", last)
	}
}

// The certificate of RFC 9773's example has this key identifier and serial number.
func TestCertIDIsThatOfTheRFC(t *testing.T) {
	cert := &x509.Certificate{
		AuthorityKeyId: []byte{0x69, 0x88, 0x5B, 0x6B, 0x87, 0x46, 0x40, 0x41, 0xE1, 0xB3, 0x7B, 0x84, 0x7B, 0xA0, 0xAE, 0x2C, 0xDE, 0x01, 0xC8, 0xD4},
		SerialNumber:   bigInt(0x87654321),
	}
	if got, err := certID(cert); err != nil || got != "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE" {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestUnsoundAdviceIsRefused(t *testing.T) {
	f := newFake(t)
	c := f.open(t, f.settings(t))
	leaf := pki.EncodeCertificates([]*x509.Certificate{certified(t, c, www).Leaf})
	f.bend = func(path string, body map[string]any) {
		body["explanationURL"] = "javascript:alert(1)"
	}
	if info, err := c.RenewalInfo(t.Context(), leaf); err != nil || info.Explanation != "" {
		t.Errorf("got %+v, %v", info, err)
	}
	f.bend = func(path string, body map[string]any) {
		body["suggestedWindow"] = map[string]string{"start": "2030-01-02T00:00:00Z", "end": "2030-01-01T00:00:00Z"}
	}
	if _, err := c.RenewalInfo(t.Context(), leaf); ca.ReasonFor(err) != ca.Internal {
		t.Errorf("a window that ends before it starts: %v", err)
	}
	if _, err := c.RenewalInfo(t.Context(), []byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n")); ca.ReasonFor(err) != ca.Invalid {
		t.Errorf("no certificate: %v", err)
	}
}

func TestAccountKeySurvivesCrashDuringRollover(t *testing.T) {
	f := newFake(t)
	settings := f.settings(t)
	c := f.open(t, settings)
	certified(t, c, www)
	kid := c.account.current().kid
	for name, learned := range map[string]bool{"before the server learned it": false, "after that": true} {
		must(t, c.account.newKey(nextFile))
		next, _, err := c.state.key(nextFile)
		must(t, err)
		if learned {
			must(t, c.account.change(t.Context(), c.account.current(), next))
		}
		again := f.open(t, settings)
		certified(t, again, www)
		if got := again.account.current(); got.kid != kid || pki.SameKey(got.key.Public(), next.Public()) != learned {
			t.Errorf("%s: the account is %s, before %s", name, got.kid, kid)
		}
		c = again
		_ = os.Remove(filepath.Join(settings.StateDir, nextFile))
	}
}

// To an order that is kept, no account is another account: the order would be made again.
func TestOutageDuringRolloverKeepsTheOrder(t *testing.T) {
	f := newFake(t)
	c := f.open(t, f.settings(t))
	away := func(paths ...string) {
		f.fault = func(path string) *http.Response {
			if slices.ContainsFunc(paths, func(one string) bool { return strings.HasPrefix(path, one) }) {
				return response(503, []byte("<html>"))
			}
			return nil
		}
	}
	req := requestFor(t, www)
	away("/cert/")
	if _, err := c.CSRSign(t.Context(), req); ca.ReasonFor(err) != ca.Unavailable {
		t.Fatal(err)
	}
	c.account.settings.RolloverAfter = 1
	away("/key", "/account")
	if _, err := c.CSRSign(t.Context(), req); ca.ReasonFor(err) != ca.Unavailable || f.seen("/key") != 1 {
		t.Errorf("during the outage: %v", err)
	}
	f.fault = nil
	if _, err := c.CSRSign(t.Context(), req); err != nil || len(f.orders) != 1 {
		t.Errorf("after it: %v; %d orders", err, len(f.orders))
	}
}

// The server has the new key then, and the file will be there in a moment.
func TestRolloverThatCannotBeKeptIsFoundOutAtOnce(t *testing.T) {
	f := newFake(t)
	settings := f.settings(t)
	c := f.open(t, settings)
	kid := must2(c.account.signer(t.Context())).kid
	kept := filepath.Join(settings.StateDir, keyFile)
	must(t, os.Remove(kept))
	must(t, os.Mkdir(kept, 0o700))
	c.account.settings.RolloverAfter = 1
	if got, err := c.account.signer(t.Context()); ca.ReasonFor(err) != ca.Unavailable || got.kid != "" {
		t.Errorf("%s signs with the old key: %v", got.kid, err)
	}
	must(t, os.Remove(kept))
	next := must2(c.account.signer(t.Context()))
	if next.kid != kid || printOf(f.accounts[kid]) != must2(next.thumbprint()) {
		t.Errorf("%s signs, not %s with the new key", next.kid, kid)
	}
}

func TestKeysAreMadeOnceAndPrivate(t *testing.T) {
	f := newFake(t)
	settings := f.settings(t)
	kids := make(chan string)
	for range 4 {
		c := f.open(t, settings)
		go func() {
			s, err := c.account.signer(t.Context())
			if err != nil {
				t.Error(err)
			}
			kids <- s.kid
		}()
	}
	first := <-kids
	for range 3 {
		if kid := <-kids; kid != first {
			t.Errorf("accounts %s and %s", first, kid)
		}
	}
	must(t, os.Chmod(settings.StateDir, 0o777))
	if _, err := Open(settings); ca.ReasonFor(err) != ca.Invalid || !strings.Contains(err.Error(), "others can write") {
		t.Errorf("a folder that others can write: %v", err)
	}
}

// Countersign makes it with 0600: it was copied here, or its mode was changed.
func TestKeyThatOthersReadIsWarnedOf(t *testing.T) {
	f := newFake(t)
	settings := f.settings(t)
	certified(t, f.open(t, settings), www)
	kept := filepath.Join(settings.StateDir, keyFile)
	for mode, warns := range map[os.FileMode]int{0o600: 0, 0o640: 0, 0o644: 1, 0o660: 1} {
		must(t, os.Chmod(kept, mode))
		var logged bytes.Buffer
		c := f.open(t, settings)
		c.account.log = slog.New(slog.NewTextHandler(&logged, nil))
		for range 2 {
			certified(t, c, www)
		}
		if n := strings.Count(logged.String(), "others can read the account's key"); n != warns || warns > 0 && !strings.Contains(logged.String(), kept) {
			t.Errorf("%s: %q", mode, logged.String())
		}
	}
}

func TestNoKeyAndNoMACIsInAnError(t *testing.T) {
	f := newFake(t)
	settings := f.settings(t)
	must(t, os.MkdirAll(settings.StateDir, 0o700))
	must(t, os.WriteFile(filepath.Join(settings.StateDir, keyFile), []byte("-----BEGIN PRIVATE KEY-----\nc2VzYW1l\n-----END PRIVATE KEY-----\n"), 0o600))
	_, err := f.open(t, settings).CSRSign(t.Context(), requestFor(t, www))
	if ca.ReasonFor(err) != ca.Unavailable || strings.Contains(err.Error(), "c2VzYW1l") || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("a broken key: %v", err)
	}
	settings.EAB = EAB{"kid", "c2VzYW1l!"}
	if err := settings.Validate(); ca.ReasonFor(err) != ca.Invalid || strings.Contains(err.Error(), "c2VzYW1l") {
		t.Errorf("a broken MAC key: %v", err)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	right := Settings{URL: newFake(t).settings(t).URL, StateDir: "/var/lib/acme"}
	must(t, right.Validate())
	for says, change := range map[string]func(*Settings){
		"state_dir is":       func(s *Settings) { s.StateDir = "acme" },
		"contact is":         func(s *Settings) { s.Contact = "mailto:me" },
		"eab":                func(s *Settings) { s.EAB.KeyID = "kid" },
		"eab.mac_key has 31": func(s *Settings) { s.EAB = EAB{"kid", strings.Repeat("A", 42)} },
		"challenge is":       func(s *Settings) { s.Challenge = "dns-02" },
		"webroot is for":     func(s *Settings) { s.Webroot, s.Challenge = "/srv", TLSALPN01 },
		"webroot is \"srv\"": func(s *Settings) { s.Webroot = "srv" },
		"unset one":          func(s *Settings) { s.Webroot, s.Listen = "/srv", ":80" },
		"dns_command has 0":  func(s *Settings) { s.Challenge = DNS01 },
		"dns_command has 1":  func(s *Settings) { s.DNSCommand = []string{"/bin/dns"} },
		"dns_command begins": func(s *Settings) { s.DNSCommand, s.Challenge = []string{"dns"}, DNS01 },
		"listen is":          func(s *Settings) { s.Listen = "80" },
	} {
		wrong := right
		change(&wrong)
		if err := wrong.Validate(); ca.ReasonFor(err) != ca.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	f := newFake(t)
	f.fault = func(string) *http.Response {
		return response(302, []byte{}, "Location", (&url.URL{Scheme: "https", Host: "evil.example"}).String())
	}
	if _, err := f.open(t, f.settings(t)).CSRSign(t.Context(), requestFor(t, www)); ca.ReasonFor(err) != ca.Invalid || !strings.Contains(err.Error(), "not followed") {
		t.Errorf("got %v", err)
	}
}
