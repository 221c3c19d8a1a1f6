package e2e

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestAgentServesThroughProviderFaults(t *testing.T) {
	t.Parallel()
	for _, mood := range []string{"panic", "die", "rave", "hoard", "breed", "boast", "babble", "nothing"} {
		t.Run(mood, func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, agentConfig{})
			w := startWorkload(t, a.socket, "default")
			writeWhole(t, a.mood(), []byte(mood))
			poll(t, "the provider to be in the mood", func() bool {
				_, err := os.Stat(a.mood())
				return errors.Is(err, fs.ErrNotExist)
			})
			// Whoever comes now is answered, and what was to be rotated is.
			late := startWorkload(t, a.socket, "default")
			held := late.certificate()
			late.await(t, "its next certificate", func() bool { return pki.Fingerprint(late.pair.Leaf) != pki.Fingerprint(held.Leaf) })
			w.await(t, "the same one", func() bool { return pki.Fingerprint(w.pair.Leaf) != pki.Fingerprint(held.Leaf) })
			if w.streams != 1 {
				t.Errorf("the stream broke: there were %d", w.streams)
			}
		})
	}
}
