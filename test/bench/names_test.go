package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/sdk/sds"
)

// namesCounts are the numbers of secrets that an agent is measured with, one after the other.
var namesCounts = flag.String("names", "1000 2000 10000 100000", "the numbers of secrets of the figure names")

// namesAtOnce are the names of one stream, of which an agent takes 10,000.
const namesAtOnce = 5000

// namesTime bounds a run: it only ends one that hangs.
const namesTime = 20 * time.Minute

// namesCost is what an agent with many secrets came to.
type namesCost struct {
	first, all time.Duration // from exec
	cpu        time.Duration // the agent's
	peak       float64       // resident, MiB
}

// names measures an agent with many secrets of its own: the first start, and a restart from the
// state of the first.
func (b *bench) names() error {
	fmt.Println("\n| The shipped agent with many secrets, provider `file`, client on the same cores | first secret | all | agent's CPU | peak memory | times the names: CPU, memory |\n|---|---|---|---|---|---|")
	var fresh, again namesCost
	last := 0
	for count := range strings.FieldsSeq(*namesCounts) {
		n, err := strconv.Atoi(count)
		if err != nil {
			return fmt.Errorf("-names: %w", err)
		}
		f, r, err := b.namesRun(n)
		if err != nil {
			return fmt.Errorf("%d secrets: %w", n, err)
		}
		f.show(fmt.Sprintf("%d secrets, ordered", n), n, last, fresh)
		r.show("… restarted from state", n, last, again)
		fresh, again, last = f, r, n
	}
	return nil
}

// show prints a row, with what it is of the row of fewer names.
func (c namesCost) show(what string, n, before int, less namesCost) {
	ratio := "-"
	if before > 0 {
		ratio = fmt.Sprintf("%d: %.2f, %.2f", n/before, float64(c.cpu)/float64(less.cpu), c.peak/less.peak)
	}
	fmt.Printf("| %s | %.2f s | %.2f s | %.2f s | %.0f MiB | %s |\n", what, c.first.Seconds(), c.all.Seconds(), c.cpu.Seconds(), c.peak, ratio)
}

// namesRun starts an agent with n secrets twice.
func (b *bench) namesRun(n int) (fresh, again namesCost, err error) {
	dir, err := os.MkdirTemp(b.dir, "names")
	if err != nil {
		return fresh, again, err
	}
	file := filepath.Join(dir, "agent.yaml")
	if err := errors.Join(os.WriteFile(file, namesConfig(dir, n), 0o644), os.Chmod(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "key"), []byte(rand.Text()+rand.Text()), 0o400),
		os.Mkdir(filepath.Join(dir, "state"), 0o700), b.giveAway(dir)); err != nil {
		return fresh, again, err
	}
	if fresh, err = b.namesStart(file, n); err != nil {
		return fresh, again, err
	}
	again, err = b.namesStart(file, n)
	return fresh, again, errors.Join(err, os.RemoveAll(dir))
}

func namesConfig(dir string, n int) []byte {
	out := fmt.Appendf(nil, "state: {dir: %[1]s/state, key_file: %[1]s/key}\nttl: 24h\nsecrets:\n", dir)
	for i := range n {
		out = fmt.Appendf(out, "- {name: %s, dns_names: [%s.example.org]}\n", nameOf(i), nameOf(i))
	}
	return out
}

func nameOf(i int) string { return fmt.Sprintf("name-%06d", i) }

// namesStart starts an agent, gets the last of its secrets, then all of them.
func (b *bench) namesStart(file string, n int) (c namesCost, err error) {
	begin := time.Now()
	cmd, err := b.shippedAgent("--config", file)
	if err != nil {
		return c, err
	}
	defer end(cmd)
	ctx, cancel := context.WithTimeout(context.Background(), namesTime)
	defer cancel()
	socket := filepath.Join(cmd.Dir, "s")
	if err := appear(socket); err != nil {
		return c, err
	}
	if err := follow(ctx, socket, n-1, n); err != nil {
		return c, err
	}
	c.first = time.Since(begin)
	var group errgroup.Group
	for from := 0; from < n; from += namesAtOnce {
		group.Go(func() error { return follow(ctx, socket, from, min(n, from+namesAtOnce)) })
	}
	if err := group.Wait(); err != nil {
		return c, err
	}
	c.all = time.Since(begin)
	// What is stored behind is part of what a secret costs.
	if err := stored(filepath.Join(filepath.Dir(file), "state"), n); err != nil {
		return c, err
	}
	if c.cpu, _, err = figures.Usage(cmd.Process.Pid); err != nil {
		return c, err
	}
	c.peak, err = peakOf(cmd.Process.Pid)
	return c, err
}

// follow returns once a stream has the secrets from one to before another.
func follow(ctx context.Context, socket string, from, to int) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).DeltaSecrets(ctx)
	if err != nil {
		return err
	}
	ask := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: sds.TypeURL, Node: &corev3.Node{Id: "bench"}}
	for i := from; i < to; i++ {
		ask.ResourceNamesSubscribe = append(ask.ResourceNamesSubscribe, nameOf(i))
	}
	for left := to - from; left > 0; {
		if err := stream.Send(ask); err != nil {
			return err
		}
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		left -= len(answer.Resources)
		ask = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: sds.TypeURL, ResponseNonce: answer.Nonce}
	}
	return nil
}

// peakOf returns the most resident memory that a process had, in MiB.
func peakOf(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
	return kib / 1024, err
}

// stored waits until the state has a record of each secret: the agent writes them behind.
func stored(dir string, n int) error {
	for begin := time.Now(); time.Since(begin) < longest; time.Sleep(50 * time.Millisecond) {
		records, err := filepath.Glob(filepath.Join(dir, "*.state"))
		if err != nil || len(records) > n {
			return err // one is of the roots
		}
	}
	return fmt.Errorf("%s has not the records of %d secrets within %s", dir, n, longest)
}
