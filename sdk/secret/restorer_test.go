package secret_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// manyKept returns an engine that holds n more secrets than default, and has stored them.
func manyKept(t *testing.T, n int) (k *kept, more func(*secret.Config)) {
	t.Helper()
	more = func(c *secret.Config) {
		for i := range n {
			spec := c.Secrets[0]
			spec.Name, spec.Identity = nameOf(i), identity(t, "spiffe://example.org/"+nameOf(i))
			c.Secrets = append(c.Secrets, spec)
		}
	}
	k = newKept(t, more)
	k.held(nameOf(n - 1))
	after(time.Second)
	return k, more
}

func nameOf(i int) string { return fmt.Sprintf("name-%03d", i) }

// With thousands of secrets, reading all records takes seconds. Each read here takes a tenth of one.
func TestWatchedSecretIsRestoredBeforeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		k, more := manyKept(t, n)
		asked := len(k.requests(n + 1))
		k.store.reading = 100 * time.Millisecond
		begun := time.Now()
		k.restart(more)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("New took %s with records that are slow to read", took)
		}
		k.notReady(nameOf(n - 1))
		if _, err := secret.Get(t.Context(), k, agent, nameOf(n-1)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("a secret that is watched was restored after %s", took)
		}
		k.notReady(nameOf(n - 2))
		after(10 * time.Second)
		for i := range n {
			if !k.status(nameOf(i)).Restored {
				t.Errorf("%s is not restored", nameOf(i))
			}
		}
		k.requests(asked)
	})
}

// The CA publishes another root before the certificates under the last one are restored.
func TestLastRootsStayUntilCertificatesAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		k, more := manyKept(t, n)
		k.ca.Rotate()
		k.store.reading = 100 * time.Millisecond
		k.restart(more)
		after(10 * time.Second)
		for i := range n {
			if s := k.status(nameOf(i)); !s.Held || !s.Restored {
				t.Errorf("%s is not restored: held %t, failure %v\n%s", nameOf(i), s.Held, s.Failure, k.logged())
			}
		}
		if got := len(k.status("ROOTCA").Roots); got != 2 {
			t.Errorf("ROOTCA has %d roots, want 2", got)
		}
		after(ttl + time.Minute)
		if got := len(k.status("ROOTCA").Roots); got != 1 {
			t.Errorf("ROOTCA has %d roots after the last certificate under the old one, want 1", got)
		}
	})
}

func TestStorageThatHangsMidwayDelaysNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		k, more := manyKept(t, n)
		k.store.reading = 100 * time.Millisecond
		k.restart(more)
		hang := make(chan struct{})
		k.store.mu.Lock()
		k.store.hang = hang
		k.store.mu.Unlock()
		after(10 * time.Second)
		for i := range n {
			k.held(nameOf(i))
		}
		k.Close()
		close(hang)
		after(time.Second)
	})
}

func TestCloseWhileRestoring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, more := manyKept(t, 20)
		k.store.reading = 100 * time.Millisecond
		k.restart(more)
		if err := k.Reload(nil, nil); err != nil {
			t.Fatal(err)
		}
		k.Close()
	})
}
