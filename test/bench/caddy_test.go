package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// BenchmarkCaddy measures names on demand at Caddy (COUNTERSIGN_CADDY), and at stock Envoy
// (COUNTERSIGN_ENVOY) with the shipped agent: the same client, the same cores, one after the other;
// first with a CA of their own, then with one Pebble (COUNTERSIGN_PEBBLE). make bench NAME=caddy.
func BenchmarkCaddy(b *testing.B) {
	root, err := programs.Root()
	if err != nil {
		b.Fatal(err)
	}
	b.Chdir(root)
	measure := func() error { return besideCaddy(b) }
	if *page == "" {
		err = measure()
	} else {
		err = figures.Write(*page, "make bench NAME=caddy", measure)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// caddyBench has what both servers use.
type caddyBench struct {
	*bench
	caddy, envoy string // programs
	ask          *httptest.Server
	asked        atomic.Int64
	askDown      atomic.Bool
}

func besideCaddy(tb testing.TB) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	ctx, cancel := context.WithTimeout(context.Background(), demandTime)
	defer cancel()
	c := &caddyBench{bench: b, caddy: filepath.Join(b.root, "caddy"), envoy: programs.Foreign(tb, "COUNTERSIGN_ENVOY")}
	if err := unpack(programs.Foreign(tb, "COUNTERSIGN_CADDY"), c.caddy); err != nil {
		return err
	}
	c.ask = httptest.NewServer(http.HandlerFunc(c.answer))
	defer c.ask.Close()
	p, err := b.startPebble(ctx, tb)
	if err != nil {
		return err
	}
	defer p.stop()
	fmt.Println("| names on demand, the same client on the same cores | Caddy | Envoy with the agent | ratio |\n|---|---|---|---|")
	if err := c.compare(ctx, ownCA, c.caddyWithOwnCA, c.envoyWithOwnCA); err != nil {
		return err
	}
	pebble := func(ctx context.Context, c *contestant) ([]result, error) { return withPebble(ctx, c, p) }
	return c.compare(ctx, pebble, func() (starter, error) { return c.caddyWithPebble(p) }, func() (starter, error) { return c.envoyWithPebble(p) })
}

// answer is `ask`: names that begin with "r" are random ones.
func (c *caddyBench) answer(w http.ResponseWriter, r *http.Request) {
	c.asked.Add(1)
	switch {
	case c.askDown.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasPrefix(r.URL.Query().Get("domain"), "r"):
		w.WriteHeader(http.StatusForbidden)
	}
}

// result is one row's figure at one server.
type result struct {
	figure, value string
	number        float64 // for the ratio; 0: there is none
}

// compare measures the same at both, and prints a row for each figure.
func (c *caddyBench) compare(ctx context.Context, measure func(context.Context, *contestant) ([]result, error), prepare ...func() (starter, error)) error {
	var all [2][]result
	for i, prepared := range prepare {
		start, err := prepared()
		if err != nil {
			return err
		}
		one := &contestant{caddyBench: c, starter: start}
		if err := one.start(ctx); err != nil {
			return err
		}
		all[i], err = measure(ctx, one)
		one.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", [2]string{"caddy", "envoy"}[i], err)
		}
	}
	for i, theirs := range all[0] {
		ours, ratio := all[1][i], ""
		if theirs.number != 0 && ours.number != 0 {
			ratio = fmt.Sprintf("%.2f", ours.number/theirs.number)
		}
		fmt.Printf("| %s | %s | %s | %s |\n", theirs.figure, theirs.value, ours.value, ratio)
	}
	return nil
}
