package broker_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	api "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 2 * time.Minute
	domain   = "spiffe://example.org/"
	own      = domain + "agent"
	proxy    = domain + "proxy" // a broker
)

// engine is a set of identities and its server.
type engine struct {
	t         testing.TB
	ca        *catest.CA
	manager   *secret.Manager
	set       *identities.Set
	workloads *workloads
	server    *broker.Server
	address   string
	log       logtest.Log

	mu       sync.Mutex
	outcomes map[broker.Outcome]int
}

// workloads resolves references to PIDs without processes: those that a test has started.
type workloads struct {
	mu    sync.Mutex
	all   map[int32]*workload
	asked int
}

type workload struct {
	id      string
	ended   []func(error)
	refused error // of Check
	held    int
}

func (w *workloads) Resolve(_ context.Context, reference *anypb.Any, ended func(error)) (broker.Workload, error) {
	var in api.WorkloadPIDReference
	if err := reference.UnmarshalTo(&in); err != nil {
		return broker.Workload{}, broker.Refuse(broker.ReferenceInvalid, "%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	one := w.all[in.GetPid()]
	switch {
	case one == nil:
		return broker.Workload{}, broker.Refuse(broker.WorkloadNotFound, "no process %d", in.GetPid())
	case one.id == "":
		return broker.Workload{}, errors.New("/proc is away")
	}
	one.held++
	one.ended = append(one.ended, ended)
	return broker.Workload{
		SPIFFEID: one.id, Name: in.String(),
		Check:   func() error { w.mu.Lock(); defer w.mu.Unlock(); return one.refused },
		Release: func() { w.mu.Lock(); defer w.mu.Unlock(); one.held-- },
	}, nil
}

func (w *workloads) start(pid int32, id string) *workload {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[pid] = &workload{id: id}
	return w.all[pid]
}

// end ends a workload as its process would.
func (w *workloads) end(pid int32) {
	w.mu.Lock()
	one := w.all[pid]
	delete(w.all, pid)
	w.mu.Unlock()
	for _, ended := range one.ended {
		ended(broker.Refuse(broker.WorkloadNotFound, "process %d has ended", pid))
	}
}

func (w *workloads) held(one *workload) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return one.held
}

// start serves the Broker API on a socket until the test ends.
func start(t testing.TB, change func(*broker.Config, *identities.Config)) *engine {
	t.Helper()
	e := &engine{t: t, ca: catest.NewCA(catest.Options{}), workloads: &workloads{all: map[int32]*workload{}}, outcomes: map[broker.Outcome]int{}}
	var err error
	e.manager, err = secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: e.ca, RootOverlap: new(time.Duration)}}, // a dropped root replaces the certificates
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
		Log:         e.log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.manager.Close() })
	many := identities.Config{
		Manager: e.manager, Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour},
		Identify: identities.Identify{Peer: func(secret.Caller) (string, bool) { return "", false }}, Log: e.log.Logger(),
	}
	cfg := broker.Config{
		Path: filepath.Join(proctest.Folder(t), "broker"), Own: own, Observe: e.observe, Log: e.log.Logger(),
		Brokers:   []broker.Broker{{SPIFFEID: proxy, References: []broker.Reference{broker.PID}}},
		Resolvers: map[broker.Reference]broker.Resolver{broker.PID: e.workloads},
	}
	if change != nil {
		change(&cfg, &many)
	}
	if e.set, err = identities.New(many); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.set.Close() })
	e.serve(cfg)
	return e
}

func (e *engine) serve(cfg broker.Config) {
	e.t.Helper()
	caller, err := e.set.JoinAs(secret.Caller{}, own)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	for _, name := range []string{"default", "ROOTCA"} {
		if _, err := secret.Get(ctx, e.set, caller, name); err != nil {
			e.t.Fatal(err)
		}
	}
	cfg.Sessions, cfg.Secrets = e.set, e.set
	cfg.TLS = tlsconfig.Options{Source: e.set, Caller: caller, Certificate: "default", Roots: "ROOTCA"}
	if e.server, err = broker.Listen(cfg); err != nil {
		e.t.Fatal(err)
	}
	e.address = "unix:" + cfg.Path
	if cfg.Address != "" {
		e.address = cfg.Address
	}
	served := make(chan error, 1)
	go func() { served <- e.server.Serve() }()
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(e.server.Close(ctx), <-served, e.server.Close(ctx)); err != nil {
			e.t.Errorf("close: %v", err)
		}
	})
}

func (e *engine) observe(outcome broker.Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.outcomes[outcome]++
}

func (e *engine) count(outcome broker.Outcome) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.outcomes[outcome]
}

// dial returns a client with a certificate of that CA.
func (e *engine) dial(authority *catest.CA, id string) api.APIClient {
	e.t.Helper()
	return api.NewAPIClient(e.connect(authority, id))
}

func (e *engine) connect(authority *catest.CA, id string) *grpc.ClientConn {
	e.t.Helper()
	chain, key := authority.Pair(0, id)
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		e.t.Fatal(err)
	}
	conn, err := grpc.NewClient(e.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		VerifyConnection: func(state tls.ConnectionState) error {
			if id := state.PeerCertificates[0].URIs[0].String(); id != own {
				return errors.New("the server is " + id)
			}
			return nil
		},
	})))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// with is a context with metadata; it ends with the test.
func (e *engine) with(header ...string) context.Context {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(e.t.Context(), header...), patience)
	e.t.Cleanup(cancel)
	return ctx
}

func (e *engine) ctx() context.Context { return e.with("broker.spiffe.io", "true") }

func pack(t testing.TB, m proto.Message) *api.WorkloadReference {
	t.Helper()
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return &api.WorkloadReference{Reference: packed}
}

func pid(t testing.TB, n int32) *api.WorkloadReference {
	t.Helper()
	return pack(t, &api.WorkloadPIDReference{Pid: n})
}

type svids = grpc.ServerStreamingClient[api.SubscribeToX509SVIDResponse]

func (e *engine) subscribe(client api.APIClient, reference *api.WorkloadReference) svids {
	e.t.Helper()
	stream, err := client.SubscribeToX509SVID(e.ctx(), &api.SubscribeToX509SVIDRequest{Reference: reference})
	if err != nil {
		e.t.Fatal(err)
	}
	return stream
}

// svid returns the next reply's only SVID.
func svid(t testing.TB, stream svids) *api.X509SVID {
	t.Helper()
	got, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if len(got.GetSvids()) != 1 {
		t.Fatalf("%d SVIDs", len(got.GetSvids()))
	}
	one := got.GetSvids()[0]
	leaf, err := x509.ParseCertificate(one.GetX509Svid())
	if err != nil || leaf.URIs[0].String() != one.GetSpiffeId() {
		t.Fatalf("the certificate of %s: %v", one.GetSpiffeId(), err)
	}
	return one
}

// refused checks the status of a call, and the reason of its ErrorInfo.
func refused(t testing.TB, err error, code codes.Code, reason broker.Reason) {
	t.Helper()
	st := status.Convert(err)
	got := broker.Reason("")
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == "spiffe.io" {
			got = broker.Reason(info.GetReason())
		}
	}
	if st.Code() != code || got != reason {
		t.Errorf("the call ends with %v (%q); want %v (%q)", err, got, code, reason)
	}
}

func receive(stream svids) error {
	_, err := stream.Recv()
	return err
}
