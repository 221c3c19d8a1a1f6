package controlplane_test

import (
	"fmt"
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
)

// Whatever happens on a stream and whichever side is slow, in the end a client that
// acknowledges has what the source has.
func TestClientConvergesToSource(t *testing.T) {
	for _, d := range []dialect{sotw, ordered, delta} {
		t.Run(string(d), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 25).Draw(rt, "steps")
				var failure error
				synctest.Test(t, func(t *testing.T) { failure = play(t, d, steps) })
				if failure != nil {
					rt.Fatal(failure)
				}
			})
		})
	}
}

// step is something that the source does, or the client.
type step struct {
	what, name string
	seconds    int
}

func drawStep(t *rapid.T) step {
	return step{
		what: rapid.SampledFrom([]string{
			"put", "put roots", "put both", "lose", "forget", "read", "read and ack", "read and nack", "take", "drop", "wait",
		}).Draw(t, "what"),
		name:    rapid.SampledFrom([]string{"a", "b", "ROOTCA", "never"}).Draw(t, "name"),
		seconds: rapid.IntRange(1, 6).Draw(t, "seconds"),
	}
}

// player is a client that remembers what it was sent.
type player struct {
	*client
	has map[string]string // versions
}

// take reads an answer, if there is one.
func (p *player) take() bool {
	a, ok := p.poll()
	maps.Copy(p.has, a.got)
	for _, name := range a.removed {
		delete(p.has, name)
	}
	return ok
}

func play(t *testing.T, d dialect, steps []step) error {
	source := secrettest.New(leaf("a", "0"), leaf("b", "0"), roots("0"))
	c := &player{open(t, d, newCache(t, source)), map[string]string{}}
	defer c.close()
	c.ask("a")
	for i, s := range steps {
		c.do(s, source, strconv.Itoa(i+1))
	}
	if c.last.nonce != "" {
		c.ack() // lists the names that a server may have been asked for with a stale nonce
	}
	for range 3 { // again after all that may have been held back
		for c.take() {
			c.ack()
		}
		time.Sleep(6 * time.Second)
	}
	for name := range c.names {
		if item := source.Items()[name]; item != nil && c.has[name] != item.Version {
			return fmt.Errorf("%s: the client has %q, the source %q", name, c.has[name], item.Version)
		}
	}
	return nil
}

func (p *player) do(s step, source *secrettest.Source, version string) {
	switch s.what {
	case "put":
		source.Put(leaf("b", version))
	case "put roots":
		source.Put(roots(version))
	case "put both":
		source.Put(leaf("a", version), roots(version))
	case "lose":
		source.Empty("b")
	case "forget":
		source.Forget("b")
	case "read":
		p.take()
	case "read and ack":
		if p.take() {
			p.ack()
		}
	case "read and nack":
		if p.take() {
			p.nack()
		}
	case "take":
		p.ask(s.name)
	case "drop":
		// go-control-plane ignores a request with a stale nonce, so it would not know that
		// a name was dropped that is taken again before the next acknowledgement.
		for p.delta == nil && p.take() {
			p.ack()
		}
		p.drop(s.name)
		delete(p.has, s.name)
	case "wait":
		time.Sleep(time.Duration(s.seconds) * time.Second)
	}
}
