package gateway_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	typeURL    = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	web        = "kubernetes-gateway://shop/web"
	serverName = "discovery.test"
)

// world is a client with its service and secrets, in a bubble.
type world struct {
	*service
	t      *testing.T
	own    *own
	client *gateway.Client
	log    *logtest.Log
	events map[gateway.Event]int
	mu     sync.Mutex
	end    func()
}

// inWorld runs a test with a client that holds a certificate for 100 hours.
func inWorld(t *testing.T, adjust func(*world, *gateway.Config), test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{service: newService(t), t: t, own: &own{items: map[string]*secret.Item{}}, log: &logtest.Log{}, events: map[gateway.Event]int{}}
		w.own.put(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Roots: w.ca.PEM()})
		w.certificate("first", 100*time.Hour)
		cfg := gateway.Config{
			Address: serverName + ":15012", NodeID: "gateway~10.0.0.1~web~shop", Secrets: w.own, Dial: w.dial,
			Observe: func(e gateway.Event) { w.mu.Lock(); w.events[e]++; w.mu.Unlock() },
			Log:     slog.New(slog.NewTextHandler(w.log, nil)),
		}
		if adjust != nil {
			adjust(w, &cfg)
		}
		var err error
		if w.client, err = gateway.New(cfg); err != nil {
			t.Fatal(err)
		}
		w.end = background.Run(w.client.Run)
		defer w.end()
		test(w)
		w.end()
		if strings.Contains(w.log.String(), "PRIVATE KEY") {
			t.Error("the log has a key")
		}
	})
}

// certificate has the agent hold another certificate.
func (w *world) certificate(name string, life time.Duration) {
	w.t.Helper()
	chain, key := leafOf(w.t, w.ca, name, life)
	w.own.put(&secret.Item{
		Name: "default", Kind: secret.KeyPair, Chain: chain, Key: key, NotAfter: time.Now().Add(life), Version: rand.Text(),
	})
}

// pair is a good secret.
func (w *world) pair(name string) *tlsv3.Secret {
	w.t.Helper()
	chain, key := leafOf(w.t, w.ca, "web.test", time.Hour)
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(chain), PrivateKey: inline(key),
	}}}
}

func (w *world) roots(name string) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(w.ca.PEM())}}}
}

func inline(text []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
}

// watch watches a name as a stream does; the channel gets each notice.
func (w *world) watch(name string) (notices chan string, stop func()) {
	w.t.Helper()
	notices = make(chan string, 100)
	stop, err := w.client.Watch(secret.Caller{}, name, func(name string) { notices <- name })
	if err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return notices, stop
}

// holds demands that a name is held with this content.
func (w *world) holds(name string, want *tlsv3.Secret) {
	w.t.Helper()
	synctest.Wait()
	resource, err := w.client.Peek(secret.Caller{}, name)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", name, err, w.log)
	}
	var got tlsv3.Secret
	if err := resource.Body.UnmarshalTo(&got); err != nil || !proto.Equal(&got, want) {
		w.t.Fatalf("%s: another secret is held (%v)\n%s", name, err, w.log)
	}
}

func (w *world) answers(name string, want error) {
	w.t.Helper()
	synctest.Wait()
	if _, err := w.client.Peek(secret.Caller{}, name); !errors.Is(err, want) {
		w.t.Fatalf("%s: got %v, want %v\n%s", name, err, want, w.log)
	}
}

func (w *world) count(e gateway.Event) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[e]
}

// token has the client have one, and counts those that were rejected.
func token(text string, rejected *int) func(*world, *gateway.Config) {
	return func(w *world, c *gateway.Config) {
		w.own.mu.Lock()
		delete(w.own.items, "default")
		w.own.mu.Unlock()
		c.Token = func(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: ca.Token(text)}, nil }
		c.TokenRejected = func(ca.Token) { *rejected++ }
	}
}

var errNotYou = status.Error(codes.Unauthenticated, "not you")

// pass lets a minute go by: the longest wait after a failure.
func (w *world) pass() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// own are the agent's secrets; a test puts them there.
type own struct {
	mu      sync.Mutex
	items   map[string]*secret.Item
	notify  func(string)
	stopped int // watches that ended
}

func (o *own) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if item := o.items[name]; item != nil {
		return item, nil
	}
	return nil, secret.ErrNotReady
}

func (o *own) Watch(_ secret.Caller, _ string, notify func(string)) (func(), error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notify = notify
	return func() { o.stopped++ }, nil
}

func (o *own) put(item *secret.Item) {
	o.mu.Lock()
	o.items[item.Name] = item
	notify := o.notify
	o.mu.Unlock()
	if notify != nil {
		notify(item.Name)
	}
}
