//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// brokerServer is a server of the Broker API for what runs sleep, which is "sleeper".
type brokerServer struct {
	socket     string
	client     func() broker.APIClient // of a broker on its list, with its current certificate
	roots      *x509.CertPool
	changeRoot func(t *testing.T)
	restart    func(t *testing.T)
}

func ourBrokerServer(t *testing.T) brokerServer {
	a, socket := startBroker(t, nil)
	roots := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(a.ca, "root-cert.pem"))
	mustDo(t, err)
	roots.AppendCertsFromPEM(text)
	return brokerServer{
		socket: socket, client: func() broker.APIClient { return brokerClient(t, a, socket) }, roots: roots,
		changeRoot: func(t *testing.T) { writeCA(t, a.ca, "second root") },
		restart:    func(t *testing.T) { a.stop(t, syscall.SIGTERM); a.start(t) },
	}
}

// spireBrokerServer is SPIRE's agent, whose broker is this user, as Envoy.
func spireBrokerServer(t *testing.T) brokerServer {
	socket := filepath.Join(proctest.Folder(t), "api.sock") // SPIRE refuses one below the Workload API's folder
	s := startSPIREWith(t, func(*spireInstallation) string {
		return fmt.Sprintf(`broker {
      socket_path = %q
      brokers = [{ id = %q, allowed_reference_types = [{ type_url = "type.googleapis.com/spiffe.broker.WorkloadPIDReference" }] }]
    }`, socket, envoyID)
	})
	program, err := exec.LookPath("sleep")
	mustDo(t, err)
	program, err = filepath.EvalSymlinks(program)
	mustDo(t, err)
	s.command(t, "entry", "create", "-parentID", spireNode, "-spiffeID", brokerDomain+"sleeper",
		"-selector", "unix:path:"+program, "-x509SVIDTTL", fmt.Sprint(int(ttl.Seconds())))
	roots := x509.NewCertPool()
	client := func() broker.APIClient {
		var got *workloadapi.X509Context
		poll(t, "SPIRE's SVID", func() bool {
			var err error
			got, err = workloadapi.FetchX509Context(t.Context(), workloadapi.WithAddr("unix://"+s.socket()))
			return err == nil
		})
		for _, bundle := range got.Bundles.Bundles() {
			for _, root := range bundle.X509Authorities() {
				roots.AddCert(root)
			}
		}
		chain, key, err := got.DefaultSVID().MarshalRaw()
		mustDo(t, err)
		return dialBroker(t, socket, pairOf(t, chain, key), roots)
	}
	return brokerServer{
		socket: socket, client: client, roots: roots,
		changeRoot: func(t *testing.T) { s.command(t, "localauthority", "x509", "prepare") },
		restart:    func(t *testing.T) { s.agent.Stop(syscall.SIGTERM); s.startAgent(t) },
	}
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

// What docs/broker.md has in its table, of both servers.
func TestRealSPIREBrokerBesideOurs(t *testing.T) {
	t.Parallel()
	common := map[string]string{
		"wrong header": "InvalidArgument", "unauthorised broker": "Unavailable", "no such process": "NotFound", "rotation": "another certificate",
		"root change": "another bundle", "restart": "Unavailable, then a certificate",
	}
	ours, spires := maps.Clone(common), maps.Clone(common)
	ours["process ends"], spires["process ends"] = "NotFound", "another certificate"
	spires["no such process"] = "Internal"
	for name, server := range map[string]struct {
		start func(*testing.T) brokerServer
		want  map[string]string
	}{"countersign": {ourBrokerServer, ours}, "spire": {spireBrokerServer, spires}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := observeBroker(t, server.start(t))
			for scenario := range server.want {
				if got[scenario] != server.want[scenario] {
					t.Errorf("%s: %s; want %s", scenario, got[scenario], server.want[scenario])
				}
			}
		})
	}
}

func observeBroker(t *testing.T, server brokerServer) map[string]string {
	t.Helper()
	got, ctx := map[string]string{}, asBroker(withDeadline(t))
	one, other := proctest.Start(t, exec.Command("sleep", "3600")), proctest.Start(t, exec.Command("sleep", "3600"))
	var first, second *watchedSVIDs
	client := server.client()
	poll(t, "the workloads' certificates", func() bool {
		var err error
		if first, err = watchSVIDs(ctx, t, client, one.PID()); err != nil {
			return false
		}
		second, err = watchSVIDs(ctx, t, client, other.PID())
		return err == nil
	})

	_, err := watchSVIDs(withDeadline(t), t, client, one.PID())
	got["wrong header"] = status.Code(err).String()
	_, err = watchSVIDs(ctx, t, dialBroker(t, server.socket, pairOf(t, first.now.GetX509Svid(), first.now.GetX509SvidKey()), server.roots), one.PID())
	got["unauthorised broker"] = status.Code(err).String()
	gone := exec.Command("true")
	mustDo(t, gone.Run())
	_, err = watchSVIDs(ctx, t, client, gone.Process.Pid)
	got["no such process"] = status.Code(err).String()

	one.Kill()
	takePID(t, one.PID())
	got["rotation"], got["process ends"] = second.next(), first.next()

	bundles, err := client.SubscribeToX509Bundles(ctx, &broker.SubscribeToX509BundlesRequest{Reference: byPID(t, other.PID())})
	mustDo(t, err)
	before, err := bundles.Recv()
	mustDo(t, err)
	server.changeRoot(t)
	after, err := bundles.Recv()
	mustDo(t, err)
	if key := "spiffe://" + trustDomain; len(after.GetBundles()[key]) > len(before.GetBundles()[key]) {
		got["root change"] = "another bundle"
	}

	server.restart(t)
	for err = nil; err == nil; {
		_, err = bundles.Recv()
	}
	got["restart"] = status.Code(err).String()
	poll(t, "the server to be back", func() bool {
		_, err := watchSVIDs(ctx, t, server.client(), other.PID())
		return err == nil
	})
	got["restart"] += ", then a certificate"
	return got
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

// takePID starts a process of another program with the PID of one that has ended.
func takePID(t *testing.T, pid int) {
	t.Helper()
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Logf("PID %d is not used again: %v", pid, err)
			return
		}
		next := proctest.Start(t, exec.Command("tail", "-f", "/dev/null"))
		if next.PID() == pid {
			return
		}
		next.Kill()
	}
}
