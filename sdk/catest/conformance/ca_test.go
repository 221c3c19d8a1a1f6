package conformance_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// ask has a new key signed and returns the check that the reply is held against.
func ask(t *testing.T, authority *catest.CA) (ca.Certificate, pki.Check, error) {
	t.Helper()
	id, err := pki.NewIdentity("spiffe://example.org/web", []string{"web.example.org"}, []string{"192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.GenerateKey("")
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := authority.CSRSign(t.Context(), ca.SignRequest{ID: "an-id", CSR: csr, TTL: time.Hour})
	return reply, pki.Check{Key: key.Public(), Identity: id, Roots: authority.Bundle(),
		Now: time.Now(), AskedUntil: time.Now().Add(time.Hour)}, err
}

func TestRepliesAreValidUnlessBroken(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*catest.Draft)
		fails  string // the check of package pki that finds it
	}{
		"good":            {},
		"wrong-key":       {catest.WrongKey, "key"},
		"wrong-name":      {catest.WrongName, "names"},
		"leaf-is-ca":      {catest.LeafIsCA, "ca"},
		"wrong-usage":     {catest.WrongUsage, "usage"},
		"expired":         {catest.Expired, "expired"},
		"not-yet-valid":   {catest.NotYetValid, "not-before"},
		"too-long":        {catest.TooLong, "not-after"},
		"root-in-chain":   {catest.RootInChain, ""},
		"no-intermediate": {catest.NoIntermediates, "chain"},
		"other-authority": {catest.OtherAuthority, "chain"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in a bubble, so on a clock far from now
				authority := catest.NewCA(catest.Options{Intermediates: 2})
				authority.Next(1, catest.Fault{Break: c.breaks})
				reply, check, err := ask(t, authority)
				if err != nil {
					t.Fatal(err)
				}
				_, err = check.Chain(reply.Chain)
				var failed *pki.CheckError
				if errors.As(err, &failed) && failed.Check != c.fails || (err == nil) != (c.fails == "") {
					t.Errorf("got %v, want the check %q to fail", err, c.fails)
				}
			})
		})
	}
}

func TestReplyWithoutRootsHasNone(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	authority.Always(catest.Fault{Break: catest.NoRoots})
	reply, _, err := ask(t, authority)
	if err != nil || len(reply.Roots) != 0 {
		t.Errorf("%d bytes of roots, %v", len(reply.Roots), err)
	}
}

func TestPairIsOfTheAuthorityAndTheNames(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	chain, key := authority.Pair(time.Hour, "spiffe://example.org/web", "web.example.org")
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	id, err := pki.NewIdentity("spiffe://example.org/web", []string{"web.example.org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := pki.Check{Key: pair.Leaf.PublicKey, Identity: id, Roots: authority.Bundle(), Now: time.Now(), AskedUntil: time.Now().Add(time.Hour)}
	if _, err := check.Chain(chain); err != nil {
		t.Error(err)
	}
}

func TestPlannedFaultsComeInOrderAndEnd(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	authority.Next(2, catest.Fault{Err: ca.ErrUnavailable})
	authority.Next(1, catest.Fault{Err: ca.ErrDenied})
	for i, want := range []error{ca.ErrUnavailable, ca.ErrUnavailable, ca.ErrDenied, nil} {
		if _, _, err := ask(t, authority); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i+1, err, want)
		}
	}
	if requests := authority.Requests(); len(requests) != 4 || requests[3].ID != "an-id" || len(requests[3].CSR) == 0 {
		t.Errorf("%d requests are on record", len(requests))
	}
}

func TestDelayIsWaitedAndHangEndsWithContext(t *testing.T) {
	authority := catest.NewCA(catest.Options{}) // made outside the bubble
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		authority.Next(1, catest.Fault{Delay: 10 * time.Second, Err: ca.ErrDenied})
		authority.Next(1, catest.Fault{Hang: true})
		start := time.Now()
		if _, err := authority.CSRSign(ctx, ca.SignRequest{}); !errors.Is(err, ca.ErrDenied) || time.Since(start) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if _, err := authority.CSRSign(ctx, ca.SignRequest{}); ca.ReasonFor(err) != ca.Deadline || time.Since(start) != time.Minute {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestWatcherSeesRootsAndEachChange(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var seen [][]byte
		ended := make(chan error)
		go func() {
			ended <- authority.WatchRoots(ctx, func(roots []byte) error { seen = append(seen, roots); return nil })
		}()
		synctest.Wait()
		old := authority.Bundle()
		authority.Rotate()
		synctest.Wait()
		rotated := authority.Bundle()
		authority.SetRoots(rotated.Union(old))
		synctest.Wait()
		if len(seen) != 3 || !bytes.Equal(seen[0], old.PEM()) || !bytes.Equal(seen[1], rotated.PEM()) || bytes.Equal(seen[2], seen[1]) {
			t.Errorf("%d sets of roots were notified", len(seen))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
