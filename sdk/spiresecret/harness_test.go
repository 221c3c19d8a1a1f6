package spiresecret_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const web = "spiffe://example.org/web"

var agent secret.Caller

type (
	reply  = workloadv1.X509SVIDResponse
	stream = grpc.ServerStreamingServer[reply]
)

// api is a Workload API in memory.
type api struct {
	workloadv1.UnimplementedSpiffeWorkloadAPIServer
	t *testing.T

	mu       sync.Mutex
	listener *bufconn.Listener // nil: the socket is not there
	server   *grpc.Server
	serve    func(stream) error // in place of reply
	reply    *reply
	changed  chan struct{} // closed when reply changes
	dials    int
	calls    int
	headers  metadata.MD
}

// newAPI returns a Workload API that is away.
func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, changed: make(chan struct{})}
	t.Cleanup(a.stop)
	return a
}

// sending returns a Workload API that sends the reply.
func sending(t *testing.T, r *reply) *api {
	t.Helper()
	a := newAPI(t)
	a.send(r)
	a.start()
	return a
}

func (a *api) start() {
	server := grpc.NewServer()
	desc := workloadv1.SpiffeWorkloadAPI_ServiceDesc
	desc.ServiceName = "SpiffeWorkloadAPI"
	server.RegisterService(&desc, a)
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }() // Stop ends it
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server, a.listener = server, listener
}

func (a *api) stop() {
	a.mu.Lock()
	server := a.server
	a.server, a.listener = nil, nil
	a.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (a *api) dial(ctx context.Context) (net.Conn, error) {
	a.mu.Lock()
	a.dials++
	listener := a.listener
	a.mu.Unlock()
	if listener == nil {
		return nil, errors.New("no such file or directory")
	}
	return listener.DialContext(ctx)
}

// send replaces what every stream is sent.
func (a *api) send(r *reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reply = r
	close(a.changed)
	a.changed = make(chan struct{})
}

// answer serves streams by f from now on.
func (a *api) answer(f func(stream) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serve = f
}

func (a *api) FetchX509SVID(_ *workloadv1.X509SVIDRequest, to stream) error {
	a.mu.Lock()
	a.calls++
	a.headers, _ = metadata.FromIncomingContext(to.Context())
	serve := a.serve
	a.mu.Unlock()
	if serve != nil {
		return serve(to)
	}
	for {
		a.mu.Lock()
		r, changed := a.reply, a.changed
		a.mu.Unlock()
		if err := to.Send(r); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-to.Context().Done():
			return nil
		}
	}
}

func (a *api) counts() (dials, calls int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dials, a.calls
}

// der returns certificates, one after another.
func der(certs ...*certtest.Pair) (all []byte) {
	for _, cert := range certs {
		all = append(all, cert.Cert.Raw...)
	}
	return all
}

// svid returns an X.509-SVID as the protocol has it, with the root as its bundle.
func svid(t *testing.T, id string, root *certtest.Pair, chain ...*certtest.Pair) *workloadv1.X509SVID {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(chain[0].Key)
	must(t, err)
	return &workloadv1.X509SVID{SpiffeId: id, X509Svid: der(chain...), X509SvidKey: key, Bundle: der(root)}
}

// of returns a reply with a new X.509-SVID, which lives for an hour.
func of(t *testing.T, root *certtest.Pair, ids ...string) *reply {
	t.Helper()
	r := new(reply)
	for _, id := range ids {
		r.Svids = append(r.Svids, svid(t, id, root, root.Leaf(t, time.Hour, id)))
	}
	return r
}

// reader is a source with its log and events.
type reader struct {
	*spiresecret.Source
	t   *testing.T
	log *logtest.Log

	mu     sync.Mutex
	events []secret.Event
}

func reading(t *testing.T, from *api, specs ...spiresecret.Spec) *reader {
	t.Helper()
	r := &reader{t: t, log: &logtest.Log{}}
	var err error
	r.Source, err = spiresecret.New(spiresecret.Config{Dial: from.dial, Secrets: specs, Observe: r.observe, Log: r.log.Logger()})
	must(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return r
}

func (r *reader) observe(e secret.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// count returns how many events of the type there were, for the secret.
func (r *reader) count(kind secret.EventKind, name string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind && e.Secret == name {
			n++
		}
	}
	return n
}

func (r *reader) held(name string) *secret.Item {
	r.t.Helper()
	item, err := r.Peek(agent, name)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", name, err, r.log)
	}
	return item
}

func (r *reader) fails(name string, want error) {
	r.t.Helper()
	if _, err := r.Peek(agent, name); !errors.Is(err, want) {
		r.t.Errorf("%s: got %v, want %v", name, err, want)
	}
}

// status returns the status of a name.
func (r *reader) status(name string) secret.Status {
	all := r.Status()
	return all[slices.IndexFunc(all, func(s secret.Status) bool { return s.Name == name })]
}

// fault returns why the last attempt failed; empty if it did not.
func (r *reader) fault(name string) (reason, text string) {
	if f := r.status(name).Failure; f != nil {
		return f.Reason, f.Text
	}
	return "", ""
}

// serves checks that default is the certificate of the pair.
func (r *reader) serves(leaf []byte) {
	r.t.Helper()
	if got := r.held("default"); !slices.Equal(leafOf(r.t, got).Raw, leaf) {
		r.t.Errorf("default is %s", got)
	}
}

// pass lets time pass, and everything happen that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var must = fatal.If
