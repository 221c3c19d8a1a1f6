package secret_test

import (
	"context"
	"crypto/x509"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// telling is an authority that tells the sets a test sends it, beside its own root.
type telling struct {
	*catest.CA
	sets chan *pki.Bundle
}

func (a telling) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	for {
		select {
		case set := <-a.sets:
			_ = changed(set.PEM())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func manyRoots(t *testing.T, n int, change func(*x509.Certificate)) *pki.Bundle {
	t.Helper()
	certs := make([]*x509.Certificate, n)
	template := certtest.Root(t).Cert
	template.PublicKey, template.SerialNumber = nil, nil // each gets its own
	if change != nil {
		change(template)
	}
	for i := range certs {
		certs[i] = certtest.SelfSigned(t, template).Cert
	}
	return pki.NewBundle(certs...)
}

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = c.NotBefore.AddDate(-1, 0, 0), c.NotBefore
}

// A set of a thousand was served together with what was kept of the set before, and our own
// readers did not take that many.
func TestServedRootsFitReaderLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	synctest.Test(t, func(t *testing.T) {
		one, two := telling{sets: make(chan *pki.Bundle)}, telling{sets: make(chan *pki.Bundle)}
		e := newEngine(t, func(c *secret.Config) {
			one.CA = c.Authorities[0].Client.(*catest.CA)
			two.CA = catest.NewCA(catest.Options{Now: c.Now})
			c.Authorities[0].Client = one
			c.Authorities = append(c.Authorities, secret.Authority{Name: "second", Client: two})
			c.Secrets[1].Authorities = append(c.Secrets[1].Authorities, "second")
		})
		readable := func(atLeast int) {
			t.Helper()
			item := e.held("ROOTCA")
			roots, err := pki.ParseBundle(item.Roots)
			if err != nil || roots.Len() < atLeast {
				t.Errorf("%d roots are served, want %d: %v", roots.Len(), atLeast, err)
			}
			if !roots.Contains(one.CA.Bundle().Certificates()[0]) {
				t.Error("the root of the leaf is missing")
			}
		}
		e.held("default")
		one.sets <- one.CA.Bundle().Union(manyRoots(t, 250, nil))
		synctest.Wait()
		readable(1)
		if f := e.status("ROOTCA").Failure; f == nil || !strings.Contains(f.Text, "250 are allowed") {
			t.Errorf("failure %+v", f)
		}
		for range 2 { // what is dropped is kept, up to 100
			one.sets <- one.CA.Bundle().Union(manyRoots(t, 249, nil))
			two.sets <- manyRoots(t, 250, nil)
			readable(250)
		}
		padding := func(c *x509.Certificate) {
			c.OCSPServer = []string{"http://example.org/" + strings.Repeat("x", 90<<10)}
		}
		two.sets <- manyRoots(t, 2, padding)
		two.sets <- manyRoots(t, 2, padding)
		readable(250)
		two.sets <- manyRoots(t, 3, padding)
		readable(250)
		if f := e.status("ROOTCA").Failure; f == nil || !strings.Contains(f.Text, "196608 are allowed") {
			t.Errorf("failure %+v", f)
		}
	})
}

// Of 900 expired roots in each set, each was a line.
func TestRootSetIsLoggedOnceAndFloodIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := telling{sets: make(chan *pki.Bundle)}
		e := newEngine(t, client(func(c *catest.CA) ca.Client { a.CA = c; return a }))
		e.held("default")
		before := len(e.logged())
		a.sets <- a.CA.Bundle().Union(manyRoots(t, 200, expired))
		synctest.Wait()
		text := e.logged()[before:]
		if n := strings.Count(text, "\n"); n != 1 || !strings.Contains(text, `msg="roots ignored" authority=test expired=200 not_pinned=0`) {
			t.Errorf("%d lines: %.300s", n, text)
		}
		added := manyRoots(t, 200, nil)
		a.sets <- a.CA.Bundle().Union(added)
		synctest.Wait()
		text = e.logged()[before+len(text):]
		if n := strings.Count(text, "\n"); n != 1 || !strings.Contains(text, `msg="roots added" authority=test count=200`) || !strings.Contains(text, added.Fingerprints()[77][:16]) {
			t.Errorf("%d lines: %.300s", n, text)
		}
		before = len(e.logged())
		empty := pki.NewBundle()
		for range 2000 {
			a.sets <- empty
		}
		synctest.Wait()
		if n := strings.Count(e.logged()[before:], "\n"); n > 210 {
			t.Errorf("%d lines for 2,000 sets at once", n)
		}
	})
}

func TestFewRootsAreLoggedInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		e.held("default")
		after(time.Second)
		if text := e.logged(); !strings.Contains(text, `msg="root added" authority=test fingerprint=`+e.root()) {
			t.Error(text)
		}
	})
}
