//go:build e2e && linux

package program

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
)

var (
	ofNode = flag.Int("of-node", 50, "how many identities each of ten ztunnels asks for; a fleet has 200: make check NAME=door-long")
	quota  = flag.Float64("quota", 20, "how many certificates the CA signs in a second; a fleet's has 7")
)

const (
	ztunnels = 10
	sidecars = 500
	// longest is how long a test may wait for certificates: nothing, for a machine that has time.
	longest = 10 * time.Minute
)

// forLoad is a replica. The provider counts what is asked of the CA, before it signs.
const forLoad = `
cluster: {kubeconfig: DIR/kube.yaml}
dev: true
providers: [{name: moody, settings: {dir: SHARED/ca, self_signed: true, calls: SHARED/calls, outage: SHARED/outage, asks: "", mood: SHARED/mood, accept: SHARED/accept}}]
authorities: [{name: moody, limits: {rate: QUOTA, burst: 7}}]
istio:
  listen: 127.0.0.1:0
  certificate: {dns_names: [countersign-ra.countersign.svc]}
  node_proxies: [istio-system/ztunnel]
rules:
- name: mesh
  match: {requests: [istio]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
audit: {file: DIR/audit.log}
leader_election: {duration: 5s}
status: {address: 'unix:DIR/page'}
`

// loaded is replicas of the shipped program at one quota, and what their clients get.
type loaded struct {
	t        *testing.T
	api      *apiServer
	shared   string // folder of the CA
	quota    float64
	replicas []*replica
	address  []string
	root     []byte

	asked, got atomic.Int64
	began      time.Time
}

func newLoaded(t *testing.T, replicas int, quota float64) *loaded {
	f := &loaded{t: t, api: newAPIServer(t), shared: proctest.Folder(t), quota: quota}
	for range replicas {
		f.start()
	}
	f.root = []byte(read(t, filepath.Join(f.shared, "ca", "ca-cert.pem")))
	return f
}

func (f *loaded) start() {
	text := strings.NewReplacer("SHARED", f.shared, "QUOTA", fmt.Sprint(f.quota)).Replace(forLoad)
	dir := files(f.t, f.api, text)
	cmd := exec.Command(programs.Path(f.t, "countersign-ra"), "serve", "--config", filepath.Join(dir, "c.yaml"))
	cmd.Env = append(proctest.Environ(dir), "COUNTERSIGN_PROVIDER_PATH="+programs.Folder(f.t, "countersign-provider-moody"))
	r := launch(f.t, dir, cmd)
	r.until(f.t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	f.replicas, f.address = append(f.replicas, r), append(f.address, r.report(f.t).Istio.Address)
}

// addNode adds a ztunnel and the pods of its node, and returns their identities.
func (f *loaded) addNode(node, pods int) (identities []string) {
	name := fmt.Sprintf("n%d", node)
	f.api.addToken("ztunnel-"+name, bound{"istio-system", "ztunnel", "ztunnel-" + name}, name)
	for n := range pods {
		namespace, account := fmt.Sprintf("ns-%d", n%10), fmt.Sprintf("sa-%d-%d", node, n)
		f.api.addToken(account+"-token", bound{namespace, account, account}, name)
		identities = append(identities, "spiffe://cluster.local/ns/"+namespace+"/sa/"+account)
	}
	return identities
}

// dial connects to a replica, and to the next one if that is dead.
func (f *loaded) dial(n int) *grpc.ClientConn {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(f.root)
	conn, err := grpc.NewClient("passthrough:///door", grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: caAddress})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (conn net.Conn, err error) {
			for i := range f.address {
				if conn, err = new(net.Dialer).DialContext(ctx, "tcp", f.address[(n+i)%len(f.address)]); err == nil {
					return conn, nil
				}
			}
			return nil, err
		}))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ztunnel gets a certificate for each identity of its node: eight at a time, with a new key at each
// try. All errors are alike to it.
func (f *loaded) ztunnel(ctx context.Context, node int, identities []string) {
	conn, inFlight := f.dial(node), make(chan struct{}, 8)
	var all sync.WaitGroup
	for _, id := range identities {
		all.Go(func() {
			for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, 150*time.Second) {
				inFlight <- struct{}{}
				err := f.ask(ctx, conn, fmt.Sprintf("ztunnel-n%d", node), id, true)
				<-inFlight
				if err == nil {
					return
				}
				nap(ctx, wait/2+mathrand.N(wait/2))
			}
		})
	}
	all.Wait()
}

// sidecar is an agent: five tries, and again up to 30 seconds later.
func (f *loaded) sidecar(ctx context.Context, conn *grpc.ClientConn, id string) {
	_, account, _ := strings.Cut(id, "/sa/")
	for ctx.Err() == nil {
		for try := range 5 {
			if f.ask(ctx, conn, account+"-token", id, false) == nil {
				return
			}
			nap(ctx, 100*time.Millisecond<<try)
		}
		nap(ctx, mathrand.N(30*time.Second))
	}
}

func nap(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// ask makes one call with a new key.
func (f *loaded) ask(ctx context.Context, conn *grpc.ClientConn, token, id string, impersonates bool) error {
	f.asked.Add(1)
	key, csr, err := csrFor(id, pkix.Name{}) // ztunnel's
	if err != nil {
		return err
	}
	request := &security.IstioCertificateRequest{Csr: csr, ValidityDuration: 86_400}
	if impersonates {
		request.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": structpb.NewStringValue(id)}}
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	reply, err := security.NewClient(conn).CreateCertificate(ctx, request)
	if err != nil {
		if code := grpcstatus.Code(err); code == codes.PermissionDenied || code == codes.InvalidArgument {
			f.t.Error(err) // no caller is refused here
		}
		return err
	}
	leaf, _, err := checked(reply.GetCertChain(), key)
	if err == nil && leaf.URIs[0].String() != id {
		err = fmt.Errorf("the certificate is for %s, not %s", leaf.URIs[0], id)
	}
	if err != nil {
		f.t.Error(err)
		return err
	}
	f.got.Add(1)
	return nil
}

// calls is how many certificates the CA was asked for.
func (f *loaded) calls() int {
	text, err := os.ReadFile(filepath.Join(f.shared, "calls"))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// load has clients get all certificates.
func (f *loaded) load(clients func(ctx context.Context, all *sync.WaitGroup), certificates int) {
	f.t.Helper()
	ctx, end := context.WithTimeout(f.t.Context(), longest)
	defer end()
	f.began = time.Now()
	f.asked.Store(0)
	f.got.Store(0)
	before := f.calls()
	var all sync.WaitGroup
	clients(ctx, &all)
	all.Wait()
	took, calls := time.Since(f.began), f.calls()-before
	if got := f.got.Load(); int(got) != certificates {
		f.t.Fatalf("%d of %d have a certificate after %s", got, certificates, took)
	}
	if each := float64(calls) / float64(certificates); each > 1.2 {
		f.t.Errorf("%.3f calls of the CA for each certificate", each)
	}
	// Two engines of each replica save a burst each.
	if most := f.quota*took.Seconds() + 7*float64(2*len(f.replicas)); float64(calls) > most {
		f.t.Errorf("%d calls in %s, %.0f are the quota", calls, took, most)
	}
	f.t.Logf("%d certificates at a quota of %g/s: the last after %.1f s (%.2f of the bound), %.3f calls of the CA and %.2f of the door for each, peak memory of countersign-ra %s; load average %s",
		certificates, f.quota, took.Seconds(), took.Seconds()*f.quota/float64(certificates), float64(calls)/float64(certificates), float64(f.asked.Load())/float64(certificates), f.peak(), load())
}

// peak is the largest resident memory of each replica that lives.
func (f *loaded) peak() string {
	var all []string
	for _, r := range f.replicas {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
		_, rest, found := strings.Cut(string(text), "VmHWM:")
		if line, _, _ := strings.Cut(rest, "\n"); found {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return strings.Join(all, " and ")
}

// together has ten ztunnels ask for all identities of their nodes.
func (f *loaded) together(beside func(ctx context.Context)) {
	f.t.Helper()
	nodes := make([][]string, ztunnels)
	for n := range nodes {
		nodes[n] = f.addNode(n, *ofNode)
	}
	f.load(func(ctx context.Context, all *sync.WaitGroup) {
		for n, identities := range nodes {
			all.Go(func() { f.ztunnel(ctx, n, identities) })
		}
		all.Go(func() { beside(ctx) })
	}, ztunnels**ofNode)
}

func nothing(context.Context) {}

func TestLoadedDoorServesTenZtunnelsAtOnce(t *testing.T) {
	newLoaded(t, 1, 10_000).together(nothing)
}

func TestLoadedDoorServesTenZtunnelsAtOnceAtAQuota(t *testing.T) {
	t.Parallel()
	newLoaded(t, 1, *quota).together(nothing)
}

// The clients of a replica that is killed go to the other, and the share of the quota follows them.
func TestLoadedDoorServesTenZtunnelsAlthoughAReplicaIsKilled(t *testing.T) {
	t.Parallel()
	f := newLoaded(t, 2, *quota)
	f.replicas[0].kills = true
	f.together(func(ctx context.Context) {
		for f.got.Load() < int64(ztunnels**ofNode/2) && ctx.Err() == nil {
			nap(ctx, 10*time.Millisecond)
		}
		f.replicas[0].Kill()
	})
}

func TestLoadedDoorServesSidecarsThatRenewInOneMinute(t *testing.T) {
	t.Parallel()
	f := newLoaded(t, 1, *quota)
	identities := f.addNode(0, sidecars)
	conns := make([]*grpc.ClientConn, sidecars)
	for n := range conns {
		conns[n] = f.dial(n)
	}
	for range 2 { // the first certificates, and those that follow
		f.load(func(ctx context.Context, all *sync.WaitGroup) {
			for n, id := range identities {
				all.Go(func() { f.sidecar(ctx, conns[n], id) })
			}
		}, sidecars)
	}
}
