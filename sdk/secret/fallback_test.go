package secret_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// two starts an engine whose "default" may be signed by "test" and, failing that,
// by "second"; ROOTCA has the roots of both.
func two(t *testing.T, change func(second *catest.CA, c *secret.Config)) (*engine, *catest.CA) {
	t.Helper()
	var second *catest.CA
	e := newEngine(t, func(c *secret.Config) {
		second = catest.NewCA(catest.Options{Now: c.Now})
		c.Authorities = append(c.Authorities, secret.Authority{Name: "second", Client: second})
		for i := range c.Secrets {
			c.Secrets[i].Authorities = []string{"test", "second"}
		}
		if change != nil {
			change(second, c)
		}
	})
	return e, second
}

// signerOf demands that ROOTCA has the roots of both, and returns who signed.
func signerOf(t *testing.T, e *engine, second *catest.CA) string {
	t.Helper()
	e.serves(rootPrint(e.ca), rootPrint(second))
	return e.held("default").Authority
}

func rootPrint(c *catest.CA) string { return pki.Fingerprint(c.Bundle().Certificates()[0]) }

func TestNextAuthoritySignsWhileFirstIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, second := two(t, nil)
		if by := signerOf(t, e, second); by != "test" {
			t.Errorf("signed by %q", by)
		}
		e.untilRenewal(-time.Second)
		e.ca.Always(catest.Fault{Err: ca.ErrUnavailable})
		after(28 * time.Second)
		if by, asked := signerOf(t, e, second), len(second.Requests()); by != "test" || asked != 0 {
			t.Errorf("after 28 s it is %q; the second was asked %d times", by, asked)
		}
		after(5 * time.Second)
		if by := signerOf(t, e, second); by != "second" {
			t.Errorf("after 33 s it is %q", by)
		}
		if first := e.ca.Requests(); first[len(first)-1].ID == second.Requests()[0].ID {
			t.Error("both were sent the same order")
		}
		if log := e.logged(); !strings.Contains(log, "trying the next one") || !strings.Contains(log, "authority=second") {
			t.Error(log)
		}

		// While it is away, the first is asked at each renewal, and the second then signs at once.
		before := len(second.Requests())
		e.untilRenewal(-time.Second)
		after(3 * time.Second)
		if n := len(second.Requests()); n != before+1 {
			t.Errorf("%d requests more", n-before)
		}
		e.ca.Always(catest.Fault{})
		e.untilRenewal(-time.Second)
		after(3 * time.Second)
		if by := signerOf(t, e, second); by != "test" {
			t.Errorf("when it was back it is %q", by)
		}
	})
}

func TestHangingAuthorityFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, second := two(t, func(_ *catest.CA, c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Delay: time.Hour})
		})
		after(35 * time.Second)
		if by := e.held("default").Authority; by != "second" || len(second.Requests()) != 1 {
			t.Errorf("signed by %q", by)
		}
	})
}

func TestRefusalDoesNotFallBack(t *testing.T) {
	for _, reason := range []*ca.Error{ca.ErrDenied, ca.ErrInvalid, ca.ErrUnauthenticated} {
		t.Run(reason.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, second := two(t, func(_ *catest.CA, c *secret.Config) {
					c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: reason})
				})
				after(time.Hour)
				e.notReady("default")
				if n := len(second.Requests()); n != 0 {
					t.Errorf("the second was asked %d times", n)
				}
			})
		})
	}
}

// A person approves the request in a minute or a day: the CA is there.
func TestPendingRequestIsRepeatedAndDoesNotFallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, second := two(t, func(_ *catest.CA, c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: &ca.Error{Reason: ca.Pending, Message: "approve it", RetryAfter: time.Minute}})
		})
		after(time.Hour)
		e.notReady("default")
		if n := len(second.Requests()); n != 0 {
			t.Errorf("the second was asked %d times", n)
		}
		requests := e.ca.Requests()
		if n := len(requests); n < 48 || n > 61 {
			t.Errorf("%d requests in an hour, asked for one a minute", n)
		}
		for _, r := range requests {
			if r.ID != requests[0].ID || !bytes.Equal(r.CSR, requests[0].CSR) {
				t.Fatal("a repeat is another request")
			}
		}
		if s := e.status("default"); s.Failure != nil || s.Pending == nil || s.Pending.Reason != "pending" || s.Pending.NextTry.IsZero() {
			t.Errorf("pending %+v, failure %+v", s.Pending, s.Failure)
		}
		if failed, waiting := e.count(secret.Failed, "pending"), e.count(secret.Waiting, "pending"); failed != 0 || waiting != len(requests) {
			t.Errorf("%d failures, %d waits", failed, waiting)
		}
		e.ca.Always(catest.Fault{})
		after(80 * time.Second)
		if s := e.status("default"); s.Pending != nil || e.held("default").Authority != "test" {
			t.Errorf("after the approval: %+v", s)
		}
	})
}

func TestWrongReplyDoesNotFallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, second := two(t, func(_ *catest.CA, c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Break: func(d *catest.Draft) { d.Leaf.IsCA = true }})
		})
		after(time.Hour)
		if n := len(second.Requests()); n != 0 {
			t.Errorf("the second was asked %d times", n)
		}
	})
}

func TestFallbackNeedsKnownRoots(t *testing.T) {
	for name, pinned := range map[string]bool{"unknown": false, "pinned": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, second := two(t, func(second *catest.CA, c *secret.Config) {
					c.Authorities[1].Client = signOnly{second} // tells its roots in replies alone
					if pinned {
						c.Authorities[1].PinnedRoots = second.Bundle()
					}
					c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: ca.ErrUnavailable})
				})
				after(5 * time.Minute)
				if !pinned {
					e.notReady("default")
					if n := len(second.Requests()); n != 0 || !strings.Contains(e.logged(), "cannot fall back") {
						t.Errorf("the second was asked %d times", n)
					}
					return
				}
				if by := signerOf(t, e, second); by != "second" {
					t.Errorf("signed by %q", by)
				}
			})
		})
	}
}

func TestTwoAbsentAuthoritiesAreAskedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, second := two(t, func(second *catest.CA, c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: ca.ErrUnavailable})
			second.Always(catest.Fault{Err: ca.ErrUnavailable})
		})
		after(5 * time.Minute)
		if first, next := len(e.ca.Requests()), len(second.Requests()); first < 10 || next < 10 || first > 60 || next > 60 {
			t.Errorf("asked %d and %d times in five minutes", first, next)
		}
		first, next := e.ca.Requests(), second.Requests()
		for _, r := range slices.Concat(first, next) {
			own := next[0]
			if slices.ContainsFunc(first, func(f ca.SignRequest) bool { return f.ID == r.ID }) {
				own = first[0]
			}
			if r.ID != own.ID || !bytes.Equal(r.CSR, own.CSR) {
				t.Fatalf("the request %s is not a retry of the authority's own order %s", r.ID, own.ID)
			}
		}
		if first[0].ID == next[0].ID || bytes.Equal(first[0].CSR, next[0].CSR) {
			t.Error("both authorities were sent the same order")
		}
		second.Always(catest.Fault{})
		after(15 * time.Second)
		if by := signerOf(t, e, second); by != "second" {
			t.Errorf("signed by %q", by)
		}
	})
}

func TestRootsOfPreviousSignerStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, second := two(t, func(_ *catest.CA, c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: ca.ErrUnavailable})
		})
		after(time.Minute)
		if by := e.held("default").Authority; by != "second" {
			t.Fatalf("signed by %q", by)
		}
		// The certificate is the second's: what the first does with its roots is nothing to it.
		asked := len(second.Requests())
		e.ca.Rotate()
		after(time.Minute)
		if n := len(second.Requests()); n != asked {
			t.Errorf("%d requests for a root of the first's", n-asked)
		}
		if e.held("default").RootFingerprint != rootPrint(second) {
			t.Error("it leads elsewhere")
		}
	})
}
