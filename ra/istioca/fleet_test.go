package istioca_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/ra/share"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// fleet is a mesh without networks, in virtual time: doors and engines are real, and the
// clients do what ztunnel and sidecars' agents do. All start at once and hold nothing.
type fleet struct {
	// perNode identities are each ztunnel's; sidecars have one each.
	ztunnels, perNode, sidecars int
	replicas                    int
	kill                        time.Duration // when the first replica dies, and its clients go to the next; zero: never
	// quota is what the CA signs in a second, and burst what it signs at once; it refuses more.
	quota float64
	burst int
	life  time.Duration
	until time.Duration // when the run ends
}

func (f fleet) identities() int { return f.ztunnels*f.perNode + f.sidecars }

// bound is when the last identity can have its first certificate.
func (f fleet) bound() time.Duration {
	return time.Duration(float64(f.identities()) / f.quota * float64(time.Second))
}

// cost is what a run took.
type cost struct {
	calls, refused, certificates int           // of the CA, and those that arrived
	asked                        int           // calls of the doors
	complete                     time.Duration // when each had its first one; zero: never
	used                         float64       // part of the quota that was used up to the bound
	expired                      int
}

func (c cost) perCertificate() float64 { return float64(c.calls) / float64(max(1, c.certificates)) }

// run is a fleet that runs.
type run struct {
	fleet
	began    time.Time
	replicas []*replica
	ca       *registry
	record   ratest.Record

	mu      sync.Mutex
	without int // identities that never had a certificate
	cost    cost
}

// replica is a door with its engine and its share of the quota.
type replica struct {
	*istioca.Server
	engine *ra.Engine
	end    func()
	dead   atomic.Bool
}

// measure runs the fleet. It must be called in a bubble.
func (f fleet) measure(tb testing.TB) cost {
	tb.Helper()
	r := &run{fleet: f, ca: newRegistry(tb, f.quota, f.burst), without: f.identities()}
	for range f.replicas {
		r.replicas = append(r.replicas, r.open())
	}
	time.Sleep(time.Hour + 2*time.Minute) // they have shared for a while
	r.began = time.Now()
	r.ca.begin(r.began, f.bound())
	ctx, end := context.WithTimeout(context.Background(), f.until)
	defer end()
	if f.kill > 0 {
		time.AfterFunc(f.kill, r.replicas[0].die)
	}
	var clients sync.WaitGroup
	for n := range f.ztunnels {
		clients.Go(func() { r.ztunnel(ctx, n) })
	}
	for n := range f.sidecars {
		clients.Go(func() { r.sidecar(ctx, n) })
	}
	clients.Wait()
	for _, one := range r.replicas {
		one.engine.Close()
		one.end()
	}
	r.cost.calls, r.cost.refused = r.ca.calls, r.ca.refused
	r.cost.used = float64(r.ca.early) / (f.quota * f.bound().Seconds())
	return r.cost
}

// open starts a replica.
func (r *run) open() *replica {
	out := &replica{}
	keeper := must(share.New(share.Config{
		Duration: time.Minute, // shorter ones cost the model more than they gain
		Store:    fading{&r.record, &out.dead},
		Wants:    func() map[string]float64 { return map[string]float64{"ca": out.engine.Wanted("ca")} },
		Changed:  func(pool string) { out.engine.ShareChanged(pool) },
		Log:      slog.New(slog.DiscardHandler),
	}))
	out.engine = must(ra.New(ra.Config{
		Policy: must(ra.NewPolicy(home, []ra.Rule{{
			Name: "mesh", Names: ra.Names{SPIFFEID: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}, Authority: "ca", MaxTTL: r.life,
		}})),
		Audit: ratest.NoAudit, Log: slog.New(slog.DiscardHandler), Doors: istioca.Doors(),
		Authorities: []ra.Authority{{
			Name: "ca", Client: r.ca, Limits: ra.Limits{Rate: r.quota, Burst: r.burst}, Share: func() float64 { return keeper.Share("ca") },
		}},
	}))
	out.Server = must(istioca.New(istioca.Config{
		Issuer: out.engine, Tokens: []authn.Named{{Name: "known", Authenticator: known{}}}, Pods: everywhere{}, TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)},
		NodeProxies: []istioca.Account{{Cluster: home, Namespace: "istio-system", ServiceAccount: "ztunnel"}}, Log: slog.New(slog.DiscardHandler),
	}))
	out.end = background.Run(keeper.Run)
	return out
}

// die ends a replica without a word: it gives nothing back.
func (one *replica) die() {
	one.dead.Store(true)
	one.engine.Close()
}

// fading is a record that the dead reach no more.
type fading struct {
	share.Store
	dead *atomic.Bool
}

func (f fading) Save(ctx context.Context, record []byte, version string) error {
	if f.dead.Load() {
		return errors.New("dead")
	}
	return f.Store.Save(ctx, record, version)
}

// of returns the replica that a client is connected to.
func (r *run) of(client int) *replica {
	if one := r.replicas[client%len(r.replicas)]; !one.dead.Load() {
		return one
	}
	return r.replicas[(client+1)%len(r.replicas)]
}

// ztunnel asks for the identities of its node, eight at a time. All errors are alike to it.
func (r *run) ztunnel(ctx context.Context, node int) {
	inFlight := make(chan struct{}, 8)
	caller := caller{r, node, fmt.Sprint("istio-system/ztunnel/n", node)}
	var all sync.WaitGroup
	for n := range r.perNode {
		asks := wish{seconds: int64(r.life / time.Second), identity: fmt.Sprintf("spiffe://cluster.local/ns/ns-%d/sa/sa-%d-%d", (node+n)%100, node, n)}
		all.Go(func() {
			held := time.Time{}
			for wait := time.Second; ctx.Err() == nil; {
				inFlight <- struct{}{}
				ends, err := caller.ask(ctx, asks, true)
				<-inFlight
				if err == nil {
					r.has(&held, ends)
					wait = time.Second
					sleep(ctx, time.Until(ends)/2)
					continue
				}
				wait = min(2*wait, 150*time.Second)
				sleep(ctx, wait/2+mathrand.N(wait/2))
			}
		})
	}
	all.Wait()
}

// sidecar is an agent: five tries for each time that Envoy asks, which comes back after up to
// 30 seconds.
func (r *run) sidecar(ctx context.Context, n int) {
	caller := caller{r, n, fmt.Sprintf("ns-%d/sidecar-%d/n%d", n%100, n, n)}
	asks, held := wish{seconds: int64(r.life / time.Second)}, time.Time{}
	for failed := 0; ctx.Err() == nil; {
		ends, err := caller.tries(ctx, asks)
		if err == nil {
			r.has(&held, ends)
			failed = 0
			sleep(ctx, time.Duration(float64(time.Until(ends))*(0.49+0.02*mathrand.Float64())))
			continue
		}
		failed = min(failed+1, 6)
		sleep(ctx, mathrand.N(min(time.Second<<failed/2, 30*time.Second)))
	}
}

// tries are an agent's five, 0.1 to 0.8 seconds apart; a refusal ends them.
func (c caller) tries(ctx context.Context, w wish) (ends time.Time, err error) {
	for try := range 5 {
		ends, err = c.ask(ctx, w, false)
		if code := status.Code(err); code == codes.OK || code == codes.PermissionDenied || code == codes.InvalidArgument {
			return ends, err
		}
		if try < 4 {
			sleep(ctx, 100*time.Millisecond<<try)
		}
	}
	return ends, err
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// has records that an identity has a certificate, and in time.
func (r *run) has(held *time.Time, ends time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cost.certificates++
	switch {
	case !held.IsZero() && now.After(*held):
		r.cost.expired++
	case held.IsZero():
		if r.without--; r.without == 0 {
			r.cost.complete = now.Sub(r.began)
		}
	}
	*held = ends
}

// caller is a client with its token.
type caller struct {
	run    *run
	number int
	token  string
}

// ask makes a call with a new key, and returns when its certificate ends.
func (c caller) ask(ctx context.Context, w wish, impersonates bool) (time.Time, error) {
	csr := c.run.nextCSR()
	request := &security.IstioCertificateRequest{Csr: csr, ValidityDuration: w.seconds}
	if impersonates {
		request.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": structpb.NewStringValue(w.identity)}}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call := &call{ctx: c.context(ctx), request: request}
	if err := c.run.of(c.number).Serve(call); err != nil {
		return time.Time{}, err
	}
	block, _ := pem.Decode([]byte(call.reply.GetCertChain()[0]))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, err
	}
	return leaf.NotAfter, nil
}

func (r *run) nextCSR() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cost.asked++
	return csrs()[r.cost.asked%len(csrs())]
}

func (c caller) context(ctx context.Context) context.Context {
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+c.token, "clusterid", home))
	return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, AuthInfo: credentials.TLSInfo{}})
}

// call is a stream of one message each way.
type call struct {
	grpc.ServerStream
	ctx     context.Context
	request *security.IstioCertificateRequest
	reply   *security.IstioCertificateResponse
}

func (c *call) Context() context.Context { return c.ctx }
func (c *call) RecvMsg(m any) error {
	into := m.(*security.IstioCertificateRequest)
	into.Csr, into.ValidityDuration, into.Metadata = c.request.Csr, c.request.ValidityDuration, c.request.Metadata
	return nil
}
func (c *call) SendMsg(m any) error { c.reply = m.(*security.IstioCertificateResponse); return nil }

// known takes the claims of the token as they are: namespace, service account and node.
type known struct{}

func (known) Authenticate(_ context.Context, c authn.Credential) (authn.Identity, error) {
	says := strings.Split(string(c.Token), "/")
	return authn.Identity{
		Kind: authn.ByTokenReview, Cluster: home, Namespace: says[0], ServiceAccount: says[1], Pod: says[1], PodUID: says[1] + says[2], Node: says[2],
	}, nil
}

// everywhere has all pods: the token of each names its node.
type everywhere struct{}

func (everywhere) Alive(_ context.Context, p istioca.Pod) (string, error) {
	return p.UID[len(p.ServiceAccount):], nil
}
func (everywhere) Runs(context.Context, istioca.Account, string) error { return nil }

// csrs have a key each, and no names, which are made once: a sidecar's key is of RSA.
var csrs = sync.OnceValue(func() (all []string) {
	for range 4 {
		all = append(all, string(ratest.CSRWith(cheapKey(), &x509.CertificateRequest{})))
	}
	return all
})

// cheapKey has the exponent 3, not 65537: a model of 10^5 identities verifies millions of signatures,
// and one of these costs a quarter.
func cheapKey() *rsa.PrivateKey {
	one, three := big.NewInt(1), big.NewInt(3)
	for {
		p, q := must(rand.Prime(rand.Reader, 1024)), must(rand.Prime(rand.Reader, 1024))
		order := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
		d := new(big.Int).ModInverse(three, order)
		if n := new(big.Int).Mul(p, q); d != nil && n.BitLen() == 2048 {
			key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: n, E: 3}, D: d, Primes: []*big.Int{p, q}}
			key.Precompute()
			return key
		}
	}
}

// registry is a CA with a quota. It answers after a tenth of a second.
type registry struct {
	*ratest.CA
	quota float64
	burst float64

	mu                    sync.Mutex
	level                 float64
	filled                time.Time
	earlyEnds             time.Time
	calls, refused, early int
}

func newRegistry(tb testing.TB, quota float64, burst int) *registry {
	tb.Helper()
	return &registry{CA: ratest.NewCA(tb), quota: quota, burst: float64(burst), level: float64(burst), filled: time.Now()}
}

// begin begins the count.
func (o *registry) begin(at time.Time, bound time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.earlyEnds, o.calls, o.refused, o.early = at.Add(bound), 0, 0, 0
}

// CSRSign implements [ca.Client].
func (o *registry) CSRSign(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
	time.Sleep(100 * time.Millisecond)
	if !o.grants(time.Now()) {
		return ca.Certificate{}, ca.Errorf(ca.RateLimited, "the quota is exceeded")
	}
	return o.Sign(req)
}

// grants takes one out of the quota.
func (o *registry) grants(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.level = min(o.burst, o.level+o.quota*now.Sub(o.filled).Seconds())
	o.filled = now
	o.calls++
	if o.level < 1-1e-6 {
		o.refused++
		return false
	}
	o.level--
	if !now.After(o.earlyEnds) {
		o.early++
	}
	return true
}

// scaled is a fleet of as many identities, a twentieth of them sidecars', with its part of 7
// certificates a second for 10^5 identities.
func scaled(identities int) fleet {
	const perNode = 95
	nodes := max(1, identities*95/100/perNode)
	return fleet{
		ztunnels: nodes, perNode: perNode, sidecars: identities - nodes*perNode, replicas: 3,
		quota: 7 * float64(identities) / 1e5, burst: 7, life: 24 * time.Hour, until: 40 * time.Hour,
	}
}

// keepsBounds demands what the issue asks for.
func (c cost) keepsBounds(tb testing.TB, f fleet) {
	tb.Helper()
	if got := c.perCertificate(); got > 1.2 {
		tb.Errorf("%.3f calls of the CA for each certificate", got)
	}
	if c.used < 0.95 {
		tb.Errorf("%.3f of the quota were used", c.used)
	}
	if c.expired > 0 || c.complete == 0 {
		tb.Errorf("%d certificates expired; all had one after %s, %s is the bound", c.expired, c.complete, f.bound())
	}
}

var (
	page       = flag.String("page", "", "write the figures into this page, between its marks")
	identities = flag.Int("identities", 0, "measure a fleet of so many: make bench NAME=fleet")
)

// TestFleetFigures measures once, also where a bound is not kept.
func TestFleetFigures(t *testing.T) {
	if *identities == 0 {
		t.Skip("make bench NAME=fleet measures")
	}
	if *page == "" {
		measureFleets(t)
		return
	}
	if err := figures.Write(*page, "make bench NAME=fleet", func() error { measureFleets(t); return nil }); err != nil {
		t.Fatal(err)
	}
}

func measureFleets(t *testing.T) {
	f := scaled(*identities)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a collection scans the stacks of all identities
	fmt.Printf("| %d identities behind Istio's door that start together against a quota of %.2f/s, in virtual time | calls of the CA for each certificate | quota used | complete, in bounds of %s | expired | calls of the door for each certificate | CPU of the model |\n|---|---|---|---|---|---|---|\n",
		f.identities(), f.quota, f.bound().Round(time.Minute))
	cases := []struct {
		says     string
		replicas int
		kill     time.Duration
	}{{"one replica", 1, 0}, {"three replicas", 3, 0}, {"three replicas, of which one is killed halfway", 3, f.bound() / 2}}
	if f.identities() > 20_000 {
		cases = cases[2:] // the hardest one
	}
	for _, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			f.replicas, f.kill = c.replicas, c.kill
			before := usage(t)
			got := f.measure(t)
			got.keepsBounds(t, f)
			fmt.Printf("| %s | %.3f | %.1f %% | %.2f | %d | %.0f | %.0f s |\n", c.says, got.perCertificate(), 100*got.used,
				got.complete.Seconds()/f.bound().Seconds(), got.expired, float64(got.asked)/float64(got.certificates), (usage(t) - before).Seconds())
		})
	}
}

// usage is the CPU time of this process.
func usage(t *testing.T) time.Duration {
	cpu, _, err := figures.Usage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return cpu
}
