package secret_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func pairOf(t *testing.T, root *certtest.Pair, ttl time.Duration) *secret.Item {
	t.Helper()
	leaf := root.Leaf(t, ttl, "spiffe://example.org/web")
	item, err := secret.NewKeyPair("row 7", "database", leaf.PEM(), leaf.KeyPEM(t))
	if err != nil {
		t.Fatal(err)
	}
	return item
}

func TestMapNotifiesWatchersOfChanges(t *testing.T) {
	var m secret.Map
	root := certtest.Root(t)
	notices := 0
	stop, err := m.Watch(secret.Caller{}, "web", func(string) { notices++ })
	if err != nil {
		t.Fatal(err)
	}
	first, second := pairOf(t, root, time.Hour), pairOf(t, root, time.Hour)
	for _, step := range []struct {
		what    string
		do      func()
		notices int
		want    *secret.Item
		err     error
	}{
		{"at first", func() {}, 0, nil, secret.ErrUnknown},
		{"not ready", func() { m.Set("web", nil) }, 1, nil, secret.ErrNotReady},
		{"another name", func() { m.Set("app", first) }, 0, nil, secret.ErrNotReady},
		{"set", func() { m.Set("web", first) }, 1, first, nil},
		{"set again", func() { m.Set("web", first) }, 0, first, nil},
		{"replaced", func() { m.Set("web", second) }, 1, second, nil},
		{"gone", func() { m.Delete("web") }, 1, nil, secret.ErrUnknown},
		{"gone again", func() { m.Delete("web") }, 0, nil, secret.ErrUnknown},
		{"back", func() { m.Set("web", first) }, 1, first, nil},
		{"not watched", func() { stop(); m.Set("web", second) }, 0, second, nil},
	} {
		notices = 0
		step.do()
		item, err := m.Peek(secret.Caller{}, "web")
		if !errors.Is(err, step.err) || (item == nil) != (step.want == nil) || item != nil && (item.Version != step.want.Version || item.Name != "web") {
			t.Errorf("%s: %v, %v", step.what, item, err)
		}
		if notices != step.notices {
			t.Errorf("%s: %d notices, want %d", step.what, notices, step.notices)
		}
	}
}

func TestMapKeepsExpiredItemBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m secret.Map
		m.Set("web", pairOf(t, certtest.Root(t), time.Minute))
		time.Sleep(2 * time.Minute)
		if item, err := m.Peek(secret.Caller{}, "web"); !errors.Is(err, secret.ErrNotReady) {
			t.Errorf("%v, %v", item, err)
		}
	})
}

func TestMapIsSafeForConcurrentUse(t *testing.T) {
	var m secret.Map
	item := pairOf(t, certtest.Root(t), time.Hour)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				stop, err := m.Watch(secret.Caller{}, "web", func(string) {})
				if err != nil {
					t.Error(err)
					return
				}
				m.Set("web", item)
				_, _ = m.Peek(secret.Caller{}, "web")
				m.Delete("web")
				stop()
			}
		})
	}
	wg.Wait()
	if _, err := m.Peek(secret.Caller{}, "web"); !errors.Is(err, secret.ErrUnknown) {
		t.Error(err)
	}
	m.Set("web", item)
	if err := secret.Ready(t.Context(), &m, "web"); err != nil {
		t.Error(err)
	}
}

func TestReadyWaitsForAnnouncedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m secret.Map
		if err := secret.Ready(t.Context(), &m, "web"); !errors.Is(err, secret.ErrUnknown) {
			t.Errorf("an unknown name: %v", err)
		}
		m.Set("web", nil)
		time.AfterFunc(time.Minute, func() { m.Set("web", pairOf(t, certtest.Root(t), time.Hour)) })
		start := time.Now()
		if err := secret.Ready(t.Context(), &m, "web"); err != nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
