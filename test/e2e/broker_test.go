package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const brokerDomain = "spiffe://" + trustDomain + "/"

// startBroker starts an agent that serves the Broker API to "proxy": what runs sleep is "sleeper", and
// everything else of this user "proxy".
func startBroker(t *testing.T, settings map[string]any) (a *agent, socket string) {
	t.Helper()
	program, err := exec.LookPath("sleep")
	mustDo(t, err)
	socket = filepath.Join(proctest.Folder(t), "broker", "socket")
	a = prepareAgent(t, agentConfig{selfSigned: settings["workload_api"] != nil})
	all := map[string]any{
		"trust_domain": trustDomain, "ttl": ttl.String(), "rotation": map[string]any{"ratio": renewRatio, "jitter": renewJitter}, "runtime_dir": a.runtimeDir(),
		"socket": map[string]any{"path": a.socket}, "status": map[string]any{"address": "unix:" + a.statusSocket()},
		"providers": a.providerEntries(t, agentConfig{selfSigned: settings["workload_api"] != nil}),
		"workloads": map[string]any{"peers": []map[string]any{
			{"uid": os.Getuid(), "executable": program, "spiffe_id": brokerDomain + "sleeper"},
			{"uid": os.Getuid(), "spiffe_id": brokerDomain + "proxy"},
		}},
		"broker": map[string]any{
			"socket": "unix://" + socket, "spiffe_id": brokerDomain + "agent",
			"brokers": []map[string]any{{"spiffe_id": brokerDomain + "proxy", "references": []string{"pid"}}},
		},
	}
	maps.Copy(all, settings)
	content, err := json.Marshal(all)
	mustDo(t, err)
	writeWhole(t, a.config(), content)
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	return a, socket
}

// brokerClient connects with the certificate that the agent has for this user over SDS.
func brokerClient(t *testing.T, a *agent, socket string) broker.APIClient {
	t.Helper()
	pair, roots := a.brokerPair(t)
	return dialBroker(t, socket, brokerDomain+"agent", pair, roots)
}

// brokerPair returns the certificate that the agent has for this user over SDS, and the roots.
func (a *agent) brokerPair(t *testing.T) (pair tls.Certificate, roots []*x509.Certificate) {
	t.Helper()
	answer, err := dialSDS(t, a.socket).FetchSecrets(withDeadline(t), &discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{"default", "ROOTCA"}})
	mustDo(t, err)
	secrets, err := secretsOf(answer)
	mustDo(t, err)
	pair, err = tls.X509KeyPair(secrets["default"].GetTlsCertificate().GetCertificateChain().GetInlineBytes(), secrets["default"].GetTlsCertificate().GetPrivateKey().GetInlineBytes())
	mustDo(t, err)
	roots, err = pki.ParseCertificates(secrets["ROOTCA"].GetValidationContext().GetTrustedCa().GetInlineBytes())
	mustDo(t, err)
	return pair, roots
}

// dialBroker connects with a certificate to a server with a SPIFFE ID that the roots verify.
func dialBroker(t *testing.T, socket, server string, pair tls.Certificate, roots []*x509.Certificate) broker.APIClient {
	t.Helper()
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		VerifyConnection: func(state tls.ConnectionState) error {
			if names := state.PeerCertificates[0].URIs; len(names) != 1 || !isBrokerServer(names[0].String(), server) {
				return fmt.Errorf("the server is %v", names)
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			return err
		},
	})))
	mustDo(t, err)
	t.Cleanup(func() { conn.Close() })
	return broker.NewAPIClient(conn)
}

// isBrokerServer reports whether a server has a SPIFFE ID, or one that begins with it where it ends with /.
func isBrokerServer(name, want string) bool {
	return name == want || strings.HasSuffix(want, "/") && strings.HasPrefix(name, want)
}

func byPID(t *testing.T, pid int) *broker.WorkloadReference {
	t.Helper()
	packed, err := anypb.New(&broker.WorkloadPIDReference{Pid: int32(pid)})
	mustDo(t, err)
	return &broker.WorkloadReference{Reference: packed}
}

func asBroker(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "broker.spiffe.io", "true")
}

// pairOf returns the certificate of a chain and a key in DER.
func pairOf(t *testing.T, chain, key []byte) (pair tls.Certificate) {
	t.Helper()
	certs, err := x509.ParseCertificates(chain)
	mustDo(t, err)
	for _, cert := range certs {
		pair.Certificate = append(pair.Certificate, cert.Raw)
	}
	pair.PrivateKey, err = x509.ParsePKCS8PrivateKey(key)
	mustDo(t, err)
	return pair
}

// watchedSVIDs is a stream of the sleeper's SVIDs.
type watchedSVIDs struct {
	grpc.ServerStreamingClient[broker.SubscribeToX509SVIDResponse]
	now *broker.X509SVID
}

func watchSVIDs(ctx context.Context, t *testing.T, client broker.APIClient, pid int) (*watchedSVIDs, error) {
	t.Helper()
	stream, err := client.SubscribeToX509SVID(ctx, &broker.SubscribeToX509SVIDRequest{Reference: byPID(t, pid)})
	if err != nil {
		return nil, err
	}
	w := &watchedSVIDs{ServerStreamingClient: stream}
	return w, w.receive()
}

func (w *watchedSVIDs) receive() error {
	got, err := w.Recv()
	if err != nil {
		return err
	}
	for _, svid := range got.GetSvids() {
		if svid.GetSpiffeId() == brokerDomain+"sleeper" {
			w.now = svid
			return nil
		}
	}
	return errors.New("it has no SVID of the workload yet")
}

// next returns what comes after the current certificate.
func (w *watchedSVIDs) next() string {
	for was := w.now.GetX509Svid(); ; {
		if err := w.receive(); err != nil {
			return status.Code(err).String()
		}
		if !bytes.Equal(w.now.GetX509Svid(), was) {
			return "another certificate"
		}
	}
}

// The broker gets the certificate of a process until that ends; by the agent's rules, its log and its metrics.
func TestBrokerGetsSecretsOfProcessUntilItEnds(t *testing.T) {
	t.Parallel()
	a, socket := startBroker(t, map[string]any{"workload_api": map[string]any{"jwt_svid": map[string]any{"audiences": []string{"db"}}}})
	client, ctx := brokerClient(t, a, socket), asBroker(withDeadline(t))
	sleeper := proctest.Start(t, exec.Command("sleep", "3600"))
	stream, err := client.SubscribeToX509SVID(ctx, &broker.SubscribeToX509SVIDRequest{Reference: byPID(t, sleeper.PID())}, grpc.WaitForReady(true))
	mustDo(t, err)
	got, err := stream.Recv()
	mustDo(t, err)
	if len(got.GetSvids()) != 1 || got.GetSvids()[0].GetSpiffeId() != brokerDomain+"sleeper" {
		t.Errorf("got %v", got.GetSvids())
	}
	tokens, err := client.FetchJWTSVID(ctx, &broker.FetchJWTSVIDRequest{Reference: byPID(t, sleeper.PID()), Audience: []string{"db"}})
	if err != nil || len(tokens.GetSvids()) != 1 || tokens.GetSvids()[0].GetSpiffeId() != brokerDomain+"sleeper" {
		t.Errorf("JWT-SVIDs: %v", err)
	}
	for name, pid := range map[string]int{"the agent": a.PID(), "its provider": a.provider(t, 0)} {
		if _, err := client.FetchJWTSVID(ctx, &broker.FetchJWTSVIDRequest{Reference: byPID(t, pid), Audience: []string{"db"}}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	sleeper.Kill()
	if _, err := stream.Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("the stream ends with %v", err)
	}
	for _, want := range []string{`countersign_broker_calls_total{outcome="granted"} 2`, `{outcome="not-entitled"} 2`, `{outcome="ended"} 1`, "countersign_broker_streams 0"} {
		poll(t, want+" in /metrics", func() bool { return strings.Contains(getPage(t, a.status, "/metrics"), want) })
	}
	if text := a.log.String(); !strings.Contains(text, "a broker gets the secrets of a workload") || !strings.Contains(text, brokerDomain+"sleeper") {
		t.Errorf("the log has no such line: %s", text)
	}
}

// A broker goes on after a restart of the agent.
func TestBrokerComesBackAfterRestart(t *testing.T) {
	t.Parallel()
	a, socket := startBroker(t, nil)
	client, ctx := brokerClient(t, a, socket), asBroker(withDeadline(t))
	subscribe := func() (grpc.ServerStreamingClient[broker.SubscribeToX509SVIDResponse], error) {
		stream, err := client.SubscribeToX509SVID(ctx, &broker.SubscribeToX509SVIDRequest{Reference: byPID(t, os.Getpid())}, grpc.WaitForReady(true))
		if err == nil {
			_, err = stream.Recv()
		}
		return stream, err
	}
	stream, err := subscribe()
	mustDo(t, err)
	a.stop(t, syscall.SIGTERM)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v", err)
	}
	a.start(t)
	poll(t, "the Broker API to be back", func() bool { _, err := subscribe(); return err == nil })
}

// A broker that is removed by a reload loses its streams; another's go on. References that this agent
// does not resolve wait for a restart.
func TestBrokersAreReplacedByReload(t *testing.T) {
	t.Parallel()
	a, socket := startBroker(t, nil)
	list := func(ids ...string) {
		a.reconfigure(t, func(c map[string]any) {
			var brokers []map[string]any
			for _, id := range ids {
				brokers = append(brokers, map[string]any{"spiffe_id": brokerDomain + id, "references": []string{"pid"}})
			}
			c["broker"].(map[string]any)["brokers"] = brokers
		})
	}
	ctx := asBroker(withDeadline(t))
	sleeper := proctest.Start(t, exec.Command("sleep", "3600"))
	pair, roots := a.brokerPair(t)
	var first *watchedSVIDs
	poll(t, "the agent's own certificate", func() (there bool) {
		var err error
		first, err = watchSVIDs(ctx, t, dialBroker(t, socket, brokerDomain+"agent", pair, roots), sleeper.PID())
		return err == nil
	})
	second := func() (*watchedSVIDs, error) {
		return watchSVIDs(ctx, t, dialBroker(t, socket, brokerDomain+"agent", pairOf(t, first.now.GetX509Svid(), first.now.GetX509SvidKey()), roots), sleeper.PID())
	}
	list("proxy", "sleeper")
	var other *watchedSVIDs
	poll(t, "the broker that was added", func() bool {
		var err error
		other, err = second()
		return err == nil
	})
	list("proxy")
	var err error
	for err == nil {
		err = other.receive()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream of the removed broker ends with %v", err)
	}
	if _, err := second(); status.Code(err) != codes.Unavailable {
		t.Errorf("the removed broker connects: %v", err)
	}
	a.reconfigure(t, func(c map[string]any) {
		b := c["broker"].(map[string]any)
		b["node"], b["brokers"] = "here", []map[string]any{{"spiffe_id": brokerDomain + "other", "references": []string{"kubernetes"}}}
	})
	poll(t, "the log about a restart", func() bool { return strings.Contains(a.log.String(), "broker.brokers") })
	if got := first.next(); got != "another certificate" {
		t.Errorf("the stream of the broker that stays: %s", got)
	}
}
