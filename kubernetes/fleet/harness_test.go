package fleet

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

func TestMain(m *testing.M) {
	proctest.Overlap(8)
	goleak.VerifyTestMain(m)
}

// patience is for what happens at once, on a machine that is busy.
const patience = 2 * time.Minute

// news is told whatever may be waited for: events, lines of log, and what API servers see.
// All of it is visible before it is told.
type news struct {
	mu   sync.Mutex
	next chan struct{} // closed by what comes
}

var happened = &news{next: make(chan struct{})}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.next)
	n.next = make(chan struct{})
}

func (n *news) coming() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		coming := happened.coming()
		if done() {
			return
		}
		select {
		case <-coming:
		case <-deadline:
			t.Fatalf("in %s it did not come to be: %s", patience, what)
		}
	}
}

// running is a fleet with its local cluster, its log and its events.
type running struct {
	*Fleet
	end func()

	mu     sync.Mutex
	log    logtest.Log
	events []Event
}

func (r *running) Write(text []byte) (int, error) {
	defer happened.tell()
	return r.log.Write(text)
}

func (r *running) logged() string { return r.log.String() }

// told returns how often an event came.
func (r *running) told(e Event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, each := range r.events {
		if each == e {
			n++
		}
	}
	return n
}

func start(t testing.TB, local interface{ config() *rest.Config }, change ...func(*Config)) *running {
	t.Helper()
	r := &running{}
	cfg := Config{
		Local: local.config(), LocalID: "local", Log: slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Changed: func(e Event) {
			defer happened.tell()
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if r.Fleet, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	r.end = background.Run(r.Run)
	t.Cleanup(r.end)
	t.Cleanup(func() {
		if strings.Contains(r.logged(), "credential-of-") {
			t.Errorf("the log has a credential: %s", r.logged())
		}
	})
	return r
}

func (r *running) ready(t testing.TB) *running {
	t.Helper()
	until(t, "ready", func() bool { return r.Ready() == nil })
	return r
}

// synced waits until a cluster is synced that an API server serves.
func (r *running) synced(t testing.TB, id string, by *apiServer) *Cluster {
	t.Helper()
	var c *Cluster
	until(t, id+" is synced", func() bool {
		found, ok := r.Cluster(id)
		c = found
		return ok && c.Synced() && c.conn.server() == by.URL
	})
	return c
}

func (r *running) status(id string) Status {
	for _, s := range r.Status() {
		if s.ID == id {
			return s
		}
	}
	return Status{}
}

func (r *running) gone(t testing.TB, id string, was *apiServer) {
	t.Helper()
	until(t, id+" is gone, and its watches and connections with it", func() bool {
		_, known := r.Cluster(id)
		return !known && r.status(id).ID == "" && was.Watches() == 0 && was.Open() == 0
	})
}

// remotes is a Secret with kubeconfigs, by cluster id.
func remotes(name string, age int, data map[string][]byte) *corev1.Secret {
	s := secret("istio-system", name, "", data)
	s.Labels = map[string]string{"istio/multiCluster": "true"}
	s.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, age, 0, time.UTC))
	return s
}

func secret(namespace, name string, kind corev1.SecretType, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "all of it"},
	}, Type: kind, Data: data}
}

func servers(t testing.TB, names ...string) []*apiServer {
	t.Helper()
	all := make([]*apiServer, len(names))
	for i, name := range names {
		all[i] = newAPIServer(t, fmt.Sprintf("credential-of-%s-0123456789", name))
	}
	return all
}
