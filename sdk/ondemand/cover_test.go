package ondemand_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// items are secrets that do not change.
type items []*secret.Item

func (all items) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	for _, item := range all {
		if item.Name == name {
			return item, nil
		}
	}
	return nil, secret.Unknown(name)
}

func (all items) Watch(secret.Caller, string, func(string)) (func(), error) { return func() {}, nil }

func covered(by ...*secret.Item) func(*engine, *ondemand.Config) {
	return func(_ *engine, c *ondemand.Config) {
		c.Covering, c.Rules[0].Cover, c.Rules[0].Names = items(by), []string{"absent", "wild"}, 10
		c.Rules[0].Patterns = patterns("**.shop.example.org")
	}
}

func TestCoverIsForItsNamesAlone(t *testing.T) {
	wildcard := &secret.Item{Name: "wild", Kind: secret.KeyPair, Version: "1", Identity: pki.Identity{DNSNames: []string{"*.shop.example.org"}}}
	other := &secret.Item{Name: "other", Kind: secret.KeyPair, Version: "1", Identity: pki.Identity{DNSNames: []string{"x.y.shop.example.org"}}}
	bubble(t, covered(wildcard, other), func(e *engine) {
		wildcard.NotAfter, other.NotAfter = e.now().Add(time.Hour), e.now().Add(time.Hour)
		for name, want := range map[string]bool{"a.shop.example.org": true, "a.b.shop.example.org": false, "x.y.shop.example.org": false} {
			e.subscribe(name)
			if e.has(name) == wildcard != want {
				t.Errorf("%s: covered %t", name, !want)
			}
		}
		e.orders(2)
		for i := range 30 {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
		}
		synctest.Wait()
		if s := e.rule(); s.Covered != 10 || s.Refused[ondemand.Full] != 21 || s.New != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// An expired wildcard never shadows an exact name (certmagic#319).
func TestCoveringCertificateIsServedWhileValid(t *testing.T) {
	wildcard := &secret.Item{Name: "wild", Kind: secret.KeyPair, Version: "1", Identity: pki.Identity{DNSNames: []string{"*.Shop.example.org"}}}
	bubble(t, covered(wildcard), func(e *engine) {
		wildcard.NotAfter = e.now().Add(time.Hour)
		h := e.subscribe("a.shop.example.org")
		if e.has("a.shop.example.org") != wildcard {
			t.Error("another item is served")
		}
		after(90 * time.Minute)
		e.answer("a.shop.example.org", secret.ErrUnknown)
		if h.notices.Load() == 0 {
			t.Error("no notice")
		}
		e.orders(0)
		e.subscribe("a.shop.example.org")
		if e.has("a.shop.example.org") == wildcard {
			t.Error("an expired certificate is served")
		}
		e.orders(1)
	})
}
