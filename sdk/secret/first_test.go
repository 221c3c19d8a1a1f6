package secret_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// fixed is a source of items that may be changed.
type fixed struct {
	mu       sync.Mutex
	items    map[string]*secret.Item
	err      error
	watchers map[int]func(string)
}

func (f *fixed) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch item := f.items[name]; {
	case f.err != nil:
		return nil, f.err
	case item != nil:
		return item, nil
	}
	return nil, secret.ErrUnknown
}

func (f *fixed) Watch(_ secret.Caller, name string, notify func(string)) (func(), error) {
	if _, err := f.Peek(agent, name); err != nil {
		return nil, err
	}
	if f.watchers == nil {
		f.watchers = map[int]func(string){}
	}
	n := len(f.watchers)
	f.watchers[n] = notify
	return func() { delete(f.watchers, n) }, nil
}

// Each push to each stream asks the sources in turn, so those without the name must cost little.
func TestSourceWithoutANameCostsLittle(t *testing.T) {
	var without, with secret.Map
	with.Set("a", &secret.Item{Kind: secret.TrustBundle, Version: "1"})
	all := secret.First(&without, &without, &with)
	most := 2.0 // one for each source without the name
	if got := testing.AllocsPerRun(100, func() { _, _ = all.Peek(agent, "a") }); got > most {
		t.Errorf("a lookup allocates %v times, want %v at most", got, most)
	}
	_, err := all.Peek(agent, strings.Repeat("x", 1000))
	if want := fmt.Sprintf("secret %q: unknown secret", strings.Repeat("x", 256)); !errors.Is(err, secret.ErrUnknown) || err.Error() != want {
		t.Errorf("a name that no source has: %v", err)
	}
}

func TestFirstKnowingSourceAnswers(t *testing.T) {
	one := &fixed{items: map[string]*secret.Item{"a": {Version: "1"}}}
	two := &fixed{items: map[string]*secret.Item{"a": {Version: "2"}, "b": {Version: "3"}}}
	both := secret.First(one, two)
	for name, want := range map[string]string{"a": "1", "b": "3"} {
		if item, err := both.Peek(agent, name); err != nil || item.Version != want {
			t.Errorf("%s: got %v, %v", name, item, err)
		}
	}
	told := 0
	stop, err := both.Watch(agent, "a", func(string) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	one.watchers[0]("a")
	two.watchers[0]("a")
	stop()
	if told != 2 || len(one.watchers)+len(two.watchers) != 0 {
		t.Errorf("notified %d times; %d watch still", told, len(one.watchers)+len(two.watchers))
	}
	if _, err := both.Peek(agent, "c"); !errors.Is(err, secret.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	if _, err := both.Watch(agent, "c", func(string) {}); !errors.Is(err, secret.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

func TestEndedSourceEndsWatch(t *testing.T) {
	one := &fixed{items: map[string]*secret.Item{"a": {}}}
	if _, err := secret.First(one, &fixed{err: secret.ErrClosed}).Watch(agent, "a", func(string) {}); !errors.Is(err, secret.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if len(one.watchers) != 0 {
		t.Error("a watch was left")
	}
}

// bundle is a source of one bundle.
func bundle(roots *pki.Bundle) *fixed {
	f := &fixed{items: map[string]*secret.Item{}}
	f.hold(roots)
	return f
}

func (f *fixed) hold(roots *pki.Bundle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items["ROOTCA"] = &secret.Item{Roots: roots.PEM(), Version: string(roots.PEM())}
}

func TestCertificateOutsideItsAnchorIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mounted := bundle(catest.NewCA(catest.Options{}).Bundle())
		e := newEngine(t, func(c *secret.Config) { c.Secrets[0].Anchor = secret.Anchor(mounted, "ROOTCA") })
		after(time.Second)
		e.notReady("default")
		if f := e.status("default").Failure; f == nil || f.Reason != "anchor" {
			t.Errorf("the failure is %+v", f)
		}
		mounted.hold(e.ca.Bundle())
		after(30 * time.Minute)
		e.held("default")
	})
}

func TestChangedAnchorReplacesCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mounted := bundle(catest.NewCA(catest.Options{}).Bundle())
		e := newEngine(t, func(c *secret.Config) {
			mounted.hold(c.Authorities[0].Client.(*catest.CA).Bundle())
			c.Secrets[0].Anchor = secret.Anchor(mounted, "ROOTCA")
		})
		first := e.held("default")
		old := e.ca.Bundle()
		e.ca.Rotate()
		e.ca.SetRoots(old.Union(e.ca.Bundle()))
		after(time.Minute)
		if e.held("default") != first {
			t.Error("it was replaced though it leads to its anchor")
		}
		mounted.hold(e.ca.Bundle().Filter(func(c *x509.Certificate) bool { return !old.Contains(c) }))
		after(time.Minute)
		if e.held("default") == first {
			t.Error("it was not replaced")
		}
	})
}
