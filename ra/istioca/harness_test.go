package istioca_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/internal/test/addressed"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/authn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	home, west = "Kubernetes", "west"
	web        = "spiffe://cluster.local/ns/shop/sa/web"
	ztunnel    = "spiffe://cluster.local/ns/istio-system/sa/ztunnel"
	machine    = "spiffe://vm.example.org/host/db-1"
)

// mesh is a door with an engine, a CA, two clusters and an OIDC issuer, in memory.
type mesh struct {
	t        *testing.T
	ca       *ratest.CA
	clusters map[string]*cluster
	issuer   *issuer
	pods     *pods
	root     *certtest.Pair // of the server
	on       *addressed.Listener
	engine   *ra.Engine
	server   *istioca.Server
	settings istioca.Config // of server
	log      logtest.Log
	down     context.CancelFunc
	over     chan error

	mu     sync.Mutex
	events []istioca.Result
}

// parts are what a test may change before the mesh starts.
type parts struct {
	door   istioca.Config
	engine ra.Config
	rules  []ra.Rule
}

func rules() []ra.Rule {
	spiffe := ra.Names{SPIFFEID: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
	return []ra.Rule{
		{Name: "fast", Match: ra.Match{Doors: []string{"istio/fast"}, Namespaces: []string{"batch"}}, Names: spiffe, Authority: "ca"},
		{Name: "mesh", Match: ra.Match{Doors: []string{"istio"}, Namespaces: []string{"shop", "istio-system"}}, Names: spiffe, Authority: "ca"},
		{
			Name: "west", Match: ra.Match{Doors: []string{"istio"}, Clusters: []string{west}, Namespaces: []string{"shop", "istio-system"}},
			Names: ra.Names{SPIFFEID: "spiffe://west.local/ns/{namespace}/sa/{serviceAccount}"}, Authority: "ca",
		},
		{
			Name: "machines", Match: ra.Match{Doors: []string{"istio"}, Clusters: []string{"vm"}, Users: []string{machine}},
			Names: ra.Names{SPIFFEID: machine}, Authority: "ca",
		},
	}
}

// newMesh starts a mesh; change, where there is one, has the last word on its settings.
func newMesh(t *testing.T, change func(m *mesh, p *parts)) *mesh {
	t.Helper()
	m := &mesh{
		t: t, ca: ratest.NewCABelow(t), pods: newPods(), root: certtest.Root(t), on: addressed.Listen(1 << 16), over: make(chan error, 1),
		clusters: map[string]*cluster{home: newCluster(), west: newCluster()}, issuer: newIssuer(t),
	}
	certificate := m.root.Leaf(t, 1000*time.Hour)
	p := parts{rules: rules(), engine: ra.Config{
		Audit: ratest.NoAudit, Log: slog.New(slog.DiscardHandler), Doors: istioca.Doors("fast"),
		Authorities: []ra.Authority{{Name: "ca", Client: m.ca, Limits: ra.Limits{Rate: 1000, Burst: 1000}}},
	}, door: istioca.Config{
		Tokens: []authn.Named{
			{Name: "oidc", Authenticator: m.issuer.verifier},
			{Name: "kubernetes", Authenticator: authn.Clusters(m.reviewer)},
		},
		IssuerClusters: map[string]string{m.issuer.URL: "vm"},
		TLS:            &tls.Config{Certificates: []tls.Certificate{*certificate.TLS()}},
		NodeProxies:    []istioca.Account{{Cluster: home, Namespace: "istio-system", ServiceAccount: "ztunnel"}},
		Pods:           m.pods, CertSigners: []string{"fast"}, Observe: m.observe, Log: m.log.Logger(),
	}}
	if change != nil {
		change(m, &p)
	}
	m.start(p)
	return m
}

func (m *mesh) start(p parts) {
	m.t.Helper()
	var err error
	if p.engine.Policy, err = ra.NewPolicy(home, p.rules); err != nil {
		m.t.Fatal(err)
	}
	if m.engine, err = ra.New(p.engine); err != nil {
		m.t.Fatal(err)
	}
	if p.door.Issuer == nil {
		p.door.Issuer = m.engine
	}
	m.settings = p.door
	if m.server, err = istioca.New(p.door); err != nil {
		m.t.Fatal(err)
	}
	var ctx context.Context
	ctx, m.down = context.WithCancel(context.Background())
	go func() { m.over <- m.server.Run(ctx, m.on) }()
}

// door returns its settings, changed.
func (m *mesh) door(change func(*istioca.Config)) istioca.Config {
	cfg := m.settings
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// reviewer chooses the API server of a cluster, as the fleet does.
func (m *mesh) reviewer(id string) authn.Authenticator {
	if id == "" {
		id = home
	}
	if c := m.clusters[id]; c != nil {
		return c.reviewer(m.t, id)
	}
	return nil
}

func (m *mesh) observe(e istioca.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, e.Result)
}

// last returns how the last call ended.
func (m *mesh) last() istioca.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) == 0 {
		return ""
	}
	return m.events[len(m.events)-1]
}

// close ends the mesh and waits for it.
func (m *mesh) close() {
	m.t.Helper()
	m.down()
	if err := <-m.over; err != nil {
		m.t.Error(err)
	}
	m.engine.Close()
	for _, c := range m.clusters {
		c.close()
	}
}

// inBubble runs a story in time that the test moves.
func inBubble(t *testing.T, change func(m *mesh, p *parts), story func(t *testing.T, m *mesh)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, change)
		defer m.close()
		story(t, m)
	})
}

// dial connects over TLS from an address.
func (m *mesh) dial(ip string) *grpc.ClientConn {
	m.t.Helper()
	return m.connect(ip, credentials.NewTLS(m.clientTLS()))
}

func (m *mesh) clientTLS() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(m.root.Cert)
	return &tls.Config{RootCAs: pool, ServerName: "server"}
}

func (m *mesh) connect(ip string, with credentials.TransportCredentials) *grpc.ClientConn {
	m.t.Helper()
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(with),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			m.on.From(ip)
			return m.on.DialContext(ctx)
		}))
	if err != nil {
		m.t.Fatal(err)
	}
	return conn
}
