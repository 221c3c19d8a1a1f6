package controlplane_test

import (
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Whatever happens on a stream and whoever is slow, in the end a client that
// acknowledges has what the source has.
func TestAClientEndsWithWhatTheSourceHas(t *testing.T) {
	for _, d := range []dialect{sotw, ordered, delta} {
		t.Run(string(d), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				synctest.Test(t, func(t *testing.T) { play(t, rt, d) })
			})
		})
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

func play(t *testing.T, rt *rapid.T, d dialect) {
	source := newDrawer(leaf("a", "0"), leaf("b", "0"), roots("0"))
	c := &player{open(t, d, newCache(t, source)), map[string]string{}}
	defer c.close()
	c.ask("a")
	for version := range rapid.IntRange(1, 25).Draw(rt, "steps") {
		step(rt, c, source, strconv.Itoa(version+1))
	}
	for range 2 { // once more after all that may have been held back
		for c.take() {
			c.ack()
		}
		time.Sleep(6 * time.Second)
	}
	for name := range c.names {
		if item := source.items[name]; item != nil && c.has[name] != item.Version {
			rt.Fatalf("%s: the client has %q, the source %q", name, c.has[name], item.Version)
		}
	}
}

// step does something to the source, or has the client do something.
func step(rt *rapid.T, c *player, source *drawer, version string) {
	name := rapid.SampledFrom([]string{"a", "b", "ROOTCA", "never"})
	switch rapid.SampledFrom([]string{"put", "put roots", "put both", "lose", "forget", "read", "read and ack", "read and nack", "take", "drop", "wait"}).Draw(rt, "step") {
	case "put":
		source.put(leaf(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "put"), version))
	case "put roots":
		source.put(roots(version))
	case "put both":
		source.put(leaf("a", version), roots(version))
	case "lose":
		source.change(func() { source.items["b"] = nil })
	case "forget":
		source.change(func() { delete(source.items, "b") })
	case "read":
		c.take()
	case "read and ack":
		if c.take() {
			c.ack()
		}
	case "read and nack":
		if c.take() {
			c.nack()
		}
	case "take":
		c.ask(name.Draw(rt, "take"))
	case "drop":
		n := name.Draw(rt, "drop")
		c.drop(n)
		delete(c.has, n)
	case "wait":
		time.Sleep(time.Duration(rapid.IntRange(1, 6).Draw(rt, "seconds")) * time.Second)
	}
}
