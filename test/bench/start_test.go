package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/sdk/sds"
)

const (
	startRuns = 21
	patience  = 20 * time.Second
)

// way is how an agent gets its authority.
type way struct {
	name     string
	provider string // the folder of its binary; empty: in the process
	receipts string // where they are kept; empty: all is hashed
}

// starts measures from exec of the agent to default and ROOTCA in the client's
// hands. The ways take turns, so that a slow moment meets them all.
func (b *bench) starts() error {
	ways := []way{
		{name: "exec of the agent to both secrets, provider in the process"},
		{"… provider a verified process, binary root's, known by its receipt", b.root, filepath.Join(b.dir, "receipts")},
		{"… provider a verified process, binary root's, hashed in full", b.root, ""},
		{"… provider a verified process, binary the user's own (a sealed copy is executed)", b.own, ""},
	}
	times := make([][]time.Duration, len(ways))
	for range startRuns {
		for i, way := range ways {
			took, err := b.startOnce(way)
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			times[i] = append(times[i], took)
		}
	}
	in := median(times[0])
	row(ways[0].name, ms(in))
	for i := 1; i < len(ways); i++ {
		row(ways[i].name, fmt.Sprintf("%s (%s more)", ms(median(times[i])), ms(median(times[i])-in)))
	}
	return nil
}

func (b *bench) startOnce(w way) (time.Duration, error) {
	args := []string{"-socket", "s", "-ca", b.ca, "-receipts", w.receipts}
	if w.provider != "" {
		path := filepath.Join(w.provider, "countersign-provider-file")
		pin, err := sha256Of(path)
		if err != nil {
			return 0, err
		}
		args = append(args, "-provider", path, "-sha256", pin)
	}
	cmd, err := b.command(filepath.Join(b.root, "agent"), args...)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer end(cmd)
	if err := fetch(filepath.Join(cmd.Dir, "s")); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait() // what it says has no part in the figure
}

func sha256Of(path string) (string, error) {
	content, err := os.ReadFile(path)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), err
}

// fetch waits for the socket and gets both secrets.
func fetch(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialWhenThere(ctx, socket) }))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{
		TypeUrl: sds.TypeURL, ResourceNames: []string{"default", "ROOTCA"}, Node: &corev3.Node{Id: "bench"},
	}, grpc.WaitForReady(true))
	if err == nil && len(answer.Resources) != 2 {
		err = fmt.Errorf("got %d secrets", len(answer.Resources))
	}
	return err
}

func dialWhenThere(ctx context.Context, socket string) (net.Conn, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		time.Sleep(200 * time.Microsecond)
	}
}
