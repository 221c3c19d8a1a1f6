package secret_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// signedBy is a client that says who it is.
type signedBy struct {
	ca.Client
	name string
}

func (s signedBy) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	cert, err := s.Client.CSRSign(ctx, req)
	cert.Signer = s.name
	return cert, err
}

func TestItemRecordsIssueTimeAndSigner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, client(func(c *catest.CA) ca.Client {
			return signedBy{c, "file 1.2\x1b\u202e" + strings.Repeat("x", 1000)}
		}))
		begun := e.now()
		got := e.held("default")
		if !got.Issued.Equal(begun) || !got.NotBefore.Before(begun) {
			t.Errorf("issued %v, not before %v, now %v", got.Issued, got.NotBefore, begun)
		}
		if !strings.HasPrefix(got.Signer, `file 1.2\x1b\u202exxx`) || len(got.Signer) > 300 {
			t.Errorf("signer %q", got.Signer)
		}
		if roots := e.held("ROOTCA"); !roots.Issued.Equal(begun) || roots.Signer != "" {
			t.Errorf("the bundle is of %v, signed by %q", roots.Issued, roots.Signer)
		}
		text, err := got.MarshalJSON()
		if err != nil || !strings.Contains(string(text), `"issued"`) || !strings.Contains(string(text), `"signer":"file`) {
			t.Errorf("%s, %v", text, err)
		}
	})
}

func TestStatusShowsHowLongDroppedRootStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, overlap(5*time.Minute))
		old := e.ca.Bundle().Certificates()[0]
		for _, root := range e.status("ROOTCA").Roots {
			if !root.KeptUntil.IsZero() || root.Subject != old.Subject.String() || !root.NotAfter.Equal(old.NotAfter) {
				t.Errorf("got %+v", root)
			}
		}
		dropped := e.root()
		e.ca.Rotate()
		until := e.now().Add(5 * time.Minute)
		roots := e.status("ROOTCA").Roots
		if len(roots) != 2 || !slices.IsSortedFunc(roots, func(a, b secret.Root) int { return strings.Compare(a.Fingerprint, b.Fingerprint) }) {
			t.Fatalf("got %+v", roots)
		}
		for _, root := range roots {
			if want := root.Fingerprint == dropped; want != root.KeptUntil.Equal(until) || want == root.KeptUntil.IsZero() {
				t.Errorf("%+v: dropped is %s until %v", root, dropped, until)
			}
		}
		after(5 * time.Minute)
		if roots := e.status("ROOTCA").Roots; len(roots) != 1 || roots[0].Fingerprint == dropped {
			t.Errorf("after the overlap there are %+v", roots)
		}
	})
}

func TestRootStillNamedByOneAuthorityIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var other *catest.CA
		e := newEngine(t, func(c *secret.Config) {
			other = catest.NewCA(catest.Options{Now: c.Now})
			other.SetRoots(other.Bundle().Union(c.Authorities[0].Client.(*catest.CA).Bundle()))
			overlap(5 * time.Minute)(c)
			c.Authorities = append(c.Authorities, secret.Authority{Name: "other", Client: other})
			c.Secrets[1].Authorities = []string{"test", "other"}
		})
		shared := e.root()
		e.status("ROOTCA")
		e.ca.Rotate()
		for _, root := range e.status("ROOTCA").Roots {
			if root.Fingerprint == shared && (!root.KeptUntil.IsZero() || !slices.Equal(root.Authorities, []string{"test", "other"})) {
				t.Errorf("got %+v", root)
			}
		}
		other.SetRoots(catest.NewCA(catest.Options{Now: e.now}).Bundle())
		for _, root := range e.status("ROOTCA").Roots {
			if root.Fingerprint == shared && root.KeptUntil.IsZero() {
				t.Error("nobody names it any more")
			}
		}
	})
}

func TestFailureNamesItsAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Err: ca.Errorf(ca.Denied, "not you")})
		})
		f := e.status("default").Failure
		if f == nil || f.Action != ca.EndAttempt || f.Reason != "denied" {
			t.Fatalf("got %+v", f)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, event := range e.events {
			if event.Kind == secret.Failed && (event.Failure == nil || *event.Failure != *f) {
				t.Errorf("the event has %+v", event.Failure)
			}
		}
	})
}
