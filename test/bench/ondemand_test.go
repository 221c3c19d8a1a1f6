package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// demandNames is how many names on demand the agent holds at last.
var demandNames = flag.Int("on-demand", 10_000, "the names on demand that the agent holds at last")

const (
	newNames   = 500  // one after the other
	freshNames = 2000 // new names, parallel at a time
	parallel   = 8
	viaEnvoy   = 200 // new names, one after the other
	heldNames  = 100 // in Envoy
	refusals   = 100 // that ask has to decide, one after the other
	perSecond  = 500 // refusals
	askRate    = 40  // calls of ask a second
	floodRate  = 2000
	floodFor   = 20 * time.Second
	demandTime = 10 * time.Minute // only ends what hangs
)

// BenchmarkOnDemand measures names on demand at the shipped agent, with a client of our own and with
// stock Envoy (COUNTERSIGN_ENVOY): make bench NAME=on-demand.
func BenchmarkOnDemand(b *testing.B) {
	root, err := programs.Root()
	if err != nil {
		b.Fatal(err)
	}
	b.Chdir(root)
	measure := func() error { return onDemand(programs.Foreign(b, "COUNTERSIGN_ENVOY")) }
	if *page == "" {
		err = measure()
	} else {
		err = figures.Write(*page, "make bench NAME=on-demand", measure)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func onDemand(envoy string) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	ctx, cancel := context.WithTimeout(context.Background(), demandTime)
	defer cancel()
	d, err := b.startDemand(ctx)
	if err != nil {
		return err
	}
	defer func() { d.close() }()
	if d.envoy, err = b.startDemandEnvoy(ctx, envoy, d.socket, 1); err != nil {
		return err
	}
	defer end(d.envoy.cmd)
	fmt.Println("| names on demand at the shipped agent, provider `file`, clients and `ask` on the same cores | measured |\n|---|---|")
	for _, figure := range []func(context.Context) error{d.fresh, d.freshAtOnce, d.freshInEnvoy, d.unmatched, d.denied, d.flood, d.many} {
		if err := figure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// demandBench is an agent with two rules: names below fresh.example.org are not asked about, those
// below asked.example.org may have a certificate if they begin with "a".
type demandBench struct {
	*bench
	file, socket string
	agent        *exec.Cmd
	stream       *demandStream
	envoy        *demandEnvoy
	ask          *httptest.Server
	asked        atomic.Int64
	bare, asking *bareServer // gRPC alone, and with a call of ask
}

func (b *bench) startDemand(ctx context.Context) (*demandBench, error) {
	dir, err := os.MkdirTemp(b.dir, "demand")
	if err != nil {
		return nil, err
	}
	d := &demandBench{bench: b, file: filepath.Join(dir, "agent.yaml")}
	d.ask = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.asked.Add(1)
		if !strings.HasPrefix(r.URL.Query().Get("domain"), "a") {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	config := fmt.Appendf(nil, `state: {dir: %[1]s/state, key_file: %[1]s/key}
secrets:
- {name: fresh, match: "*.fresh.example.org", ttl: 24h, on_demand: {names: 200000}}
- {name: asked, match: "*.asked.example.org", ttl: 24h, on_demand: {names: 50000, ask: {url: %[2]q}}}
`, dir, d.ask.URL)
	err = errors.Join(os.WriteFile(d.file, config, 0o644), os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "state"), 0o700),
		os.WriteFile(filepath.Join(dir, "key"), []byte(rand.Text()+rand.Text()), 0o400), b.giveAway(dir))
	if err == nil {
		err = d.start(ctx)
	}
	if err == nil {
		d.bare, err = b.startBare(ctx)
	}
	if err == nil {
		d.asking, err = b.startBare(ctx, d.ask.URL)
	}
	if err != nil {
		d.ask.Close()
		return nil, err
	}
	return d, nil
}

// start starts the agent, and a stream to it.
func (d *demandBench) start(ctx context.Context) (err error) {
	if d.agent, err = d.shippedAgent("--config", d.file); err != nil {
		return err
	}
	d.socket = filepath.Join(d.agent.Dir, "s")
	if err = appear(d.socket); err == nil {
		d.stream, err = openDemandStream(ctx, d.socket)
	}
	if err != nil {
		end(d.agent)
	}
	return err
}

func (d *demandBench) stop() {
	d.stream.close()
	end(d.agent)
}

func (d *demandBench) close() {
	d.stop()
	d.bare.stop()
	d.asking.stop()
	d.ask.Close()
}

// used returns the agent's CPU time during a call.
func (d *demandBench) used(do func() error) (time.Duration, error) { return usedBy(d.agent, do) }

// usedBy returns a process's CPU time during a call.
func usedBy(process *exec.Cmd, do func() error) (time.Duration, error) {
	before, err := figures.CPU(process.Process.Pid)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := figures.CPU(process.Process.Pid)
	return after - before, err
}

// fresh measures new names, one after the other.
func (d *demandBench) fresh(ctx context.Context) error {
	took, err := timed(newNames, func(i int) error { return d.stream.must(ctx, fmt.Sprintf("one-%d.fresh.example.org", i), true) })
	if err == nil {
		row("a new name on a delta ADS stream, one after the other: p50, p99", halfAndMost(took))
	}
	return err
}

// freshAtOnce measures how many new names there are in a second.
func (d *demandBench) freshAtOnce(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(parallel)
	began := time.Now()
	for i := range freshNames {
		group.Go(func() error { return d.stream.must(ctx, fmt.Sprintf("par-%d.fresh.example.org", i), true) })
	}
	err := group.Wait()
	if err == nil {
		row(fmt.Sprintf("new names a second, %d at a time", parallel), fmt.Sprintf("%.0f", freshNames/time.Since(began).Seconds()))
	}
	return err
}

// freshInEnvoy measures new names in the middle of handshakes, beside the same handshakes again.
func (d *demandBench) freshInEnvoy(ctx context.Context) error {
	shake := func(i int) error { return d.envoy.shake(ctx, fmt.Sprintf("envoy-%d.fresh.example.org", i)) }
	first, err := timed(viaEnvoy, shake)
	if err != nil {
		return err
	}
	again, err := timed(viaEnvoy, shake)
	if err == nil {
		row("a new name in Envoy's handshake: p50, p99", halfAndMost(first))
		row("a held name in Envoy's handshake: p50, p99", halfAndMost(again))
	}
	return err
}

// timed returns how long each call took, the shortest first.
func timed(n int, do func(i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if err := do(i); err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took, nil
}

func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func halfAndMost(sorted []time.Duration) string {
	return ms(percentile(sorted, 50)) + ", " + ms(percentile(sorted, 99))
}
