//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// brokerServer is a server of the Broker API for what runs sleep, which is "sleeper".
type brokerServer struct {
	socket, id string
	pair       func() (tls.Certificate, []*x509.Certificate) // of a broker on its list, as of now, and the roots
	changeRoot func(t *testing.T)
	restart    func(t *testing.T)
}

// brokerDialer connects a client.
type brokerDialer func(t *testing.T, socket, server string, pair tls.Certificate, roots []*x509.Certificate) broker.APIClient

func ourBrokerServer(t *testing.T) brokerServer {
	a, socket := startBroker(t, nil)
	return brokerServer{
		socket: socket, id: brokerDomain + "agent", pair: func() (tls.Certificate, []*x509.Certificate) { return a.brokerPair(t) },
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
		"-selector", "unix:path:"+program, "-x509SVIDTTL", spireTTL)
	return brokerServer{ // it presents the ID of its join token or that of the node: which of both varies
		socket: socket, id: "spiffe://" + trustDomain + "/", pair: func() (tls.Certificate, []*x509.Certificate) { return s.brokerPair(t) },
		changeRoot: func(t *testing.T) { s.command(t, "localauthority", "x509", "prepare") },
		restart:    func(t *testing.T) { s.agent.Stop(syscall.SIGTERM); s.startAgent(t) },
	}
}

func (s *spireInstallation) brokerPair(t *testing.T) (pair tls.Certificate, roots []*x509.Certificate) {
	t.Helper()
	var got *workloadapi.X509Context
	poll(t, "SPIRE's SVID", func() bool {
		var err error
		got, err = workloadapi.FetchX509Context(t.Context(), workloadapi.WithAddr("unix://"+s.socket()))
		return err == nil
	})
	for _, bundle := range got.Bundles.Bundles() {
		roots = append(roots, bundle.X509Authorities()...)
	}
	chain, key, err := got.DefaultSVID().MarshalRaw()
	mustDo(t, err)
	return pairOf(t, chain, key), roots
}

// brokerScenarios is what docs/broker.md has in its table of this agent.
func brokerScenarios() map[string]string {
	return map[string]string{
		"wrong header": "InvalidArgument", "unauthorised broker": "no connection", "no such process": "NotFound", "rotation": "another certificate",
		"root change": "another bundle", "restart": "Unavailable, then a certificate", "process ends": "NotFound",
	}
}

// spireScenarios are the outcomes at SPIRE's agent.
func spireScenarios() map[string]string {
	all := brokerScenarios()
	all["process ends"], all["no such process"] = "another certificate", "Internal"
	return all
}

// What docs/broker.md has in its table, of both servers.
func TestRealSPIREBrokerBesideOurs(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]struct {
		start func(*testing.T) brokerServer
		want  map[string]string
	}{"countersign": {ourBrokerServer, brokerScenarios()}, "spire": {spireBrokerServer, spireScenarios()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observeBroker(t, server.start(t), dialBroker, server.want)
		})
	}
}

// observeBroker fails the test where a scenario does not end as wanted.
func observeBroker(t *testing.T, server brokerServer, dial brokerDialer, want map[string]string) {
	t.Helper()
	got := broughtAbout(t, server, dial)
	for scenario := range want {
		if got[scenario] != want[scenario] {
			t.Errorf("%s: %s; want %s", scenario, got[scenario], want[scenario])
		}
	}
}

// broughtAbout brings the scenarios about and returns how each ends.
func broughtAbout(t *testing.T, server brokerServer, dial brokerDialer) map[string]string {
	t.Helper()
	got, ctx := map[string]string{}, asBroker(withDeadline(t))
	one, other := proctest.Start(t, exec.Command("sleep", "3600")), proctest.Start(t, exec.Command("sleep", "3600"))
	var first, second *watchedSVIDs
	connect := func() broker.APIClient {
		pair, roots := server.pair()
		return dial(t, server.socket, server.id, pair, roots)
	}
	client := connect()
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
	_, roots := server.pair()
	_, err = watchSVIDs(ctx, t, dial(t, server.socket, server.id, pairOf(t, first.now.GetX509Svid(), first.now.GetX509SvidKey()), roots), one.PID())
	if got["unauthorised broker"] = status.Code(err).String(); status.Code(err) == codes.Unavailable {
		got["unauthorised broker"] = "no connection"
	}
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
		_, err := watchSVIDs(ctx, t, connect(), other.PID())
		return err == nil
	})
	got["restart"] += ", then a certificate"
	return got
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
