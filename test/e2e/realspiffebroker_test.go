//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	statusv1 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// rustBroker makes calls with the broker bindings of Rust's library spiffe: a process for each.
type rustBroker struct {
	broker.APIClient // those that it does not have
	t                *testing.T
	command          []string
}

// dialBrokerInRust writes the broker's certificate and the roots for the program.
func dialBrokerInRust(t *testing.T, socket, server string, pair tls.Certificate, roots []*x509.Certificate) broker.APIClient {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	mustDo(t, err)
	var bundle []byte
	for _, root := range roots {
		bundle = append(bundle, root.Raw...)
	}
	folder := t.TempDir()
	for name, content := range map[string][]byte{"chain.der": slices.Concat(pair.Certificate...), "key.der": key, "bundle.der": bundle} {
		mustDo(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	return rustBroker{t: t, command: []string{programs.Foreign(t, "COUNTERSIGN_SPIFFE_RUST"), socket, "broker", folder, server}}
}

func (r rustBroker) SubscribeToX509SVID(ctx context.Context, in *broker.SubscribeToX509SVIDRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[broker.SubscribeToX509SVIDResponse], error) {
	return callInRust[broker.SubscribeToX509SVIDResponse](ctx, r, in.GetReference(), "x509"), nil
}

func (r rustBroker) SubscribeToX509Bundles(ctx context.Context, in *broker.SubscribeToX509BundlesRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[broker.SubscribeToX509BundlesResponse], error) {
	return callInRust[broker.SubscribeToX509BundlesResponse](ctx, r, in.GetReference(), "x509-bundles"), nil
}

func (r rustBroker) SubscribeToJWTBundles(ctx context.Context, in *broker.SubscribeToJWTBundlesRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[broker.SubscribeToJWTBundlesResponse], error) {
	return callInRust[broker.SubscribeToJWTBundlesResponse](ctx, r, in.GetReference(), "jwt-bundles"), nil
}

func (r rustBroker) FetchJWTSVID(ctx context.Context, in *broker.FetchJWTSVIDRequest, _ ...grpc.CallOption) (*broker.FetchJWTSVIDResponse, error) {
	return callInRust[broker.FetchJWTSVIDResponse](ctx, r, in.GetReference(), "jwt", in.GetAudience()...).Recv()
}

// rustReplies are the lines that the program prints.
type rustReplies[M any, P interface {
	*M
	proto.Message
}] struct {
	grpc.ClientStream
	t     *testing.T
	lines *bufio.Scanner
}

// callInRust starts the program. It is killed when the test ends.
func callInRust[M any, P interface {
	*M
	proto.Message
}](ctx context.Context, r rustBroker, reference *broker.WorkloadReference, call string, audience ...string) *rustReplies[M, P] {
	r.t.Helper()
	var pid broker.WorkloadPIDReference
	mustDo(r.t, reference.GetReference().UnmarshalTo(&pid))
	args := r.command[1:]
	if sent, _ := metadata.FromOutgoingContext(ctx); len(sent.Get("broker.spiffe.io")) == 0 {
		args = slices.Concat(args, []string{"without-header"})
	}
	log := &logtest.Log{}
	cmd := exec.CommandContext(ctx, r.command[0], slices.Concat(args, []string{call, strconv.Itoa(int(pid.GetPid()))}, audience)...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = []string{}, log, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	mustDo(r.t, err)
	mustDo(r.t, cmd.Start())
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if r.t.Failed() {
			r.t.Logf("the log of the program in Rust:\n%s", log)
		}
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return &rustReplies[M, P]{t: r.t, lines: lines}
}

func (r *rustReplies[M, P]) Recv() (*M, error) {
	if !r.lines.Scan() {
		return nil, fmt.Errorf("the program in Rust ended: %w", io.ErrUnexpectedEOF)
	}
	kind, rest, _ := strings.Cut(r.lines.Text(), " ")
	if kind == "end" {
		return nil, r.end(rest)
	}
	reply := new(M)
	return reply, r.decode(rest, P(reply))
}

// end returns the status of a line such as "5 0803".
func (r *rustReplies[M, P]) end(line string) error {
	number, details, _ := strings.Cut(line, " ")
	code, err := strconv.ParseUint(number, 10, 32)
	mustDo(r.t, err)
	if details == "" {
		if lost := codes.Code(code); lost == codes.Unknown || lost == codes.Canceled { // as tonic has it where a connection fails or is lost
			code = uint64(codes.Unavailable)
		}
		return status.Error(codes.Code(code), "without details")
	}
	var st statusv1.Status
	mustDo(r.t, r.decode(details, &st))
	return status.FromProto(&st).Err()
}

func (r *rustReplies[M, P]) decode(text string, to proto.Message) error {
	content, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	return proto.Unmarshal(content, to)
}

// The scenarios that docs/broker.md has in its table.
func TestRealSPIFFEBrokerInRustSeesWhatGoSees(t *testing.T) {
	t.Parallel()
	observeBroker(t, ourBrokerServer(t), dialBrokerInRust, brokerScenarios())
}

// Rust's library against SPIRE's agent.
func TestRealSPIREBrokerInRustSeesWhatGoSees(t *testing.T) {
	t.Parallel()
	observeBroker(t, spireBrokerServer(t), dialBrokerInRust, spireScenarios())
}

// Rust's library gets the JWT-SVIDs and their keys of a process, and the standard's reason when that has ended.
func TestRealSPIFFEBrokerInRustGetsJWTSVIDs(t *testing.T) {
	t.Parallel()
	a, socket := startBroker(t, map[string]any{"workload_api": map[string]any{"jwt_svid": map[string]any{"audiences": []string{"db"}}}})
	pair, roots := a.brokerPair(t)
	client, ctx := dialBrokerInRust(t, socket, brokerDomain+"agent", pair, roots), asBroker(withDeadline(t))
	sleeper := proctest.Start(t, exec.Command("sleep", "3600"))
	var svids *broker.FetchJWTSVIDResponse
	poll(t, "the JWT-SVID", func() bool {
		var err error
		svids, err = client.FetchJWTSVID(ctx, &broker.FetchJWTSVIDRequest{Reference: byPID(t, sleeper.PID()), Audience: []string{"db"}})
		return err == nil
	})
	bundles, err := client.SubscribeToJWTBundles(ctx, &broker.SubscribeToJWTBundlesRequest{Reference: byPID(t, sleeper.PID())})
	mustDo(t, err)
	got, err := bundles.Recv()
	mustDo(t, err)
	var keys jose.JSONWebKeySet
	mustDo(t, json.Unmarshal(got.GetBundles()["spiffe://"+trustDomain], &keys))
	token, err := jose.ParseSigned(svids.GetSvids()[0].GetSvid(), []jose.SignatureAlgorithm{jose.ES256, jose.RS256})
	mustDo(t, err)
	if found := keys.Key(token.Signatures[0].Header.KeyID); len(svids.GetSvids()) != 1 || svids.GetSvids()[0].GetSpiffeId() != brokerDomain+"sleeper" || len(found) != 1 {
		t.Errorf("%d JWT-SVIDs, of %s; %d keys", len(svids.GetSvids()), svids.GetSvids()[0].GetSpiffeId(), len(found))
	}
	sleeper.Kill()
	_, err = bundles.Recv()
	if status.Code(err) != codes.NotFound || len(status.Convert(err).Details()) != 1 {
		t.Errorf("the stream ends with %v", err)
	}
}
