package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	spiffeapi "github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/internal/test/figures"
)

const (
	jwtRate = 1000 // JWT-SVIDs a second
	jwtTime = 10 * time.Second
	// jwtSigned is how many new ones one caller asks for: the agent lets it have 200 at once.
	jwtSigned      = 150
	jwtSubscribers = 500
)

// jwtConfig is beside what shippedAgent sets.
const jwtConfig = `workload_api: {socket: w, jwt_svid: {audiences: ["*"]}}` + "\n"

// jwtSVIDs measures the shipped agent's Workload API: how long callers wait for a JWT-SVID at a
// rate, and what it remembers for a subscriber.
func (b *bench) jwtSVIDs() error {
	if err := raiseFiles(); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "jwt.yaml")
	if err := os.WriteFile(file, []byte(jwtConfig), 0o644); err != nil {
		return err
	}
	cmd, err := b.shippedAgent("--config", file)
	if err != nil {
		return err
	}
	defer end(cmd)
	if err := fetch(filepath.Join(cmd.Dir, "s")); err != nil {
		return err
	}
	socket := "unix://" + filepath.Join(cmd.Dir, "w")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := spiffeapi.New(ctx, spiffeapi.WithAddr(socket))
	if err != nil {
		return err
	}
	defer client.Close()
	bundles, err := client.FetchJWTBundles(ctx) // waits for the keys
	if err != nil {
		return err
	}
	fmt.Printf("\n| JWT-SVIDs of the shipped agent: %d a second for %s by go-spiffe, client on the same cores | p50 | p99 | a second |\n|---|---|---|---|\n", jwtRate, jwtTime)
	var n atomic.Int64
	return errors.Join(
		jwtLatency("held, over the socket", client, int(jwtTime.Seconds()*jwtRate), func() string { return "held" }),
		jwtLatency(fmt.Sprintf("signed by the provider and verified for each of %d calls", jwtSigned), client, jwtSigned, func() string { return fmt.Sprint("new-", n.Add(1)) }),
		jwtParsing(client, bundles),
		jwtMemory(cmd.Process.Pid, socket))
}

// jwtLatency asks at jwtRate. A call that has to wait for its turn is late from then on, so an
// agent that is behind shows as one.
func jwtLatency(name string, client *spiffeapi.Client, calls int, audience func() string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	took, failed := make([]time.Duration, calls), make([]error, calls)
	var all sync.WaitGroup
	began := time.Now()
	for i := range calls {
		due := began.Add(time.Duration(i) * time.Second / jwtRate)
		time.Sleep(time.Until(due))
		all.Go(func() {
			_, failed[i] = client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: audience()})
			took[i] = time.Since(due)
		})
	}
	all.Wait()
	jwtRow(name, took, float64(calls)/time.Since(began).Seconds())
	for _, err := range failed {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err) // one says enough
		}
	}
	return nil
}

func jwtRow(name string, took []time.Duration, rate float64) {
	slices.Sort(took)
	fmt.Printf("| %s | %s | %s | %.0f |\n", name, micros(took[len(took)/2]), micros(took[len(took)*99/100]), rate)
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
}

// jwtParsing measures what a service spends on each token.
func jwtParsing(client *spiffeapi.Client, bundles *jwtbundle.Set) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	svid, err := client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: "held"})
	if err != nil {
		return err
	}
	token, took := svid.Marshal(), make([]time.Duration, 5000)
	began := time.Now()
	for i := range took {
		start := time.Now()
		if _, err := jwtsvid.ParseAndValidate(token, bundles, []string{"held"}); err != nil {
			return err
		}
		took[i] = time.Since(start)
	}
	jwtRow("go-spiffe's parsing and verification, one at a time", took, float64(len(took))/time.Since(began).Seconds())
	return nil
}

// jwtMemory opens subscribers with a connection each, which follow certificates and JWT keys.
func jwtMemory(pid int, socket string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	closeFirst, err := jwtSubscribe(ctx, socket, 1) // what the first brings is not each one's
	defer closeFirst()
	if err != nil {
		return err
	}
	time.Sleep(settle)
	before, err := figures.Resident(pid)
	if err != nil {
		return err
	}
	closeAll, err := jwtSubscribe(ctx, socket, jwtSubscribers)
	defer closeAll()
	if err != nil {
		return err
	}
	time.Sleep(settle)
	after, err := figures.Resident(pid)
	fmt.Printf("\n| The shipped agent with %d subscribers of its Workload API, each on its own connection | measured |\n|---|---|\n", jwtSubscribers)
	row("resident memory for a subscriber (X.509 and JWT bundle stream)", fmt.Sprintf("%.1f KiB", float64(after-before)/jwtSubscribers))
	return err
}

// jwtSubscribe opens n of them, and returns when each has been answered on both streams.
func jwtSubscribe(ctx context.Context, socket string, n int) (closeAll func(), err error) {
	var conns []*grpc.ClientConn
	closeAll = func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "workload.spiffe.io", "true")
	for range n {
		conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return closeAll, err
		}
		conns = append(conns, conn)
		client := workload.NewSpiffeWorkloadAPIClient(conn)
		svids, err := client.FetchX509SVID(ctx, &workload.X509SVIDRequest{})
		if err == nil {
			_, err = svids.Recv()
		}
		if err != nil {
			return closeAll, err
		}
		keys, err := client.FetchJWTBundles(ctx, &workload.JWTBundlesRequest{})
		if err == nil {
			_, err = keys.Recv()
		}
		if err != nil {
			return closeAll, err
		}
	}
	return closeAll, nil
}
