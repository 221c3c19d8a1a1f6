package trustbundle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	signer = "example.com/pods"
	object = "example.com:pods:bundle"

	bundles = "clustertrustbundles"
)

var errAway = errors.New("connection refused")

// server is an API server that a test can have fail, hang, or change what is written. Lists and
// watches go on.
type server struct {
	*kubetest.Fake

	err      error
	writeErr error // of writes alone
	hang     bool
	alter    func(*certificatesv1.ClusterTrustBundle) // before it is stored
	after    func(*certificatesv1.ClusterTrustBundle) // once it is
}

func newServer() *server {
	s := &server{Fake: kubetest.NewFake()}
	s.Before, s.After = s.before, s.stored
	return s
}

func (s *server) counts() (gets, writes int) {
	return s.Called("get", bundles), s.Called("create", bundles) + s.Called("update", bundles)
}

func (s *server) before(c *kubetest.Call) error {
	if c.Verb == "list" || c.Verb == "watch" {
		return nil
	}
	var now server
	s.Set(func() { now = *s })
	switch {
	case now.hang:
		<-c.Context.Done()
		return c.Context.Err()
	case now.err != nil || c.Verb == "get":
		return now.err
	case now.writeErr != nil:
		return now.writeErr
	case now.alter != nil:
		o := kubetest.As[certificatesv1.ClusterTrustBundle](c.Object)
		now.alter(o)
		c.Object = kubetest.ObjectOf(o)
	}
	return nil
}

func (s *server) stored(c *kubetest.Call) {
	var after func(*certificatesv1.ClusterTrustBundle)
	s.Set(func() { after = s.after })
	if after != nil && (c.Verb == "create" || c.Verb == "update") {
		after(kubetest.As[certificatesv1.ClusterTrustBundle](c.Object))
	}
}

// desk is a door with all that it needs.
type desk struct {
	*trustbundle.Door
	t      *testing.T
	server *server
	log    logtest.Log

	mu      sync.Mutex
	roots   map[string]*pki.Bundle
	written map[string]*pki.Bundle
	heard   []*pki.Bundle // all that was reported
	stop    context.CancelFunc
	done    chan struct{}
}

// inBubble runs a test with a door for the signer, with a clock of its own.
func inBubble(t *testing.T, change func(*trustbundle.Config), test func(d *desk), objects ...*certificatesv1.ClusterTrustBundle) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, server: newServer(), roots: map[string]*pki.Bundle{}, written: map[string]*pki.Bundle{}}
		for _, o := range objects {
			d.put(o)
		}
		cfg := trustbundle.Config{
			Cluster: "home", Client: d.server.Client(), Bundles: []trustbundle.Bundle{{Signer: signer, Authority: "ca"}}, Log: d.log.Logger(),
			Roots: func(authority string) *pki.Bundle { d.mu.Lock(); defer d.mu.Unlock(); return d.roots[authority] },
			Written: func(authority string, roots *pki.Bundle) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.written[authority] = roots
				d.heard = append(d.heard, roots)
			},
		}
		if change != nil {
			change(&cfg)
		}
		door, err := trustbundle.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		d.Door = door
		defer func() {
			if d.stop != nil {
				d.end()
			}
		}()
		test(d)
	})
}

func (d *desk) start() {
	ctx, cancel := context.WithCancel(d.t.Context())
	d.stop, d.done = cancel, make(chan struct{})
	go func() { defer close(d.done); d.Run(ctx) }()
	d.pass(3 * time.Second)
}

func (d *desk) end() {
	d.stop()
	<-d.done
	d.stop = nil
}

func (d *desk) pass(by time.Duration) {
	time.Sleep(by)
	synctest.Wait()
}

// knows has the authority have those roots, without a notice.
func (d *desk) knows(authority string, roots *pki.Bundle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.roots[authority] = roots
}

// has gives the authority those roots, and notifies the door.
func (d *desk) has(authority string, roots *pki.Bundle) {
	d.knows(authority, roots)
	d.Changed(authority, roots)
}

func (d *desk) confirmed(authority string) *pki.Bundle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written[authority]
}

// forget forgets what was confirmed.
func (d *desk) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.written)
}

func (d *desk) put(o *certificatesv1.ClusterTrustBundle) { d.server.Put(o) }

func (d *desk) remove(name string) { d.server.Remove(bundles, "", name) }

// find returns an object, past the test's faults; nil if there is none.
func (d *desk) find(name string) *certificatesv1.ClusterTrustBundle {
	return kubetest.Get[certificatesv1.ClusterTrustBundle](d.server.Fake, bundles, "", name)
}

func (d *desk) get(name string) *certificatesv1.ClusterTrustBundle {
	d.t.Helper()
	o := d.find(name)
	if o == nil {
		d.t.Fatalf("there is no %s", name)
	}
	return o
}

// holds demands that the signer's object is as it should be.
func (d *desk) holds(roots *pki.Bundle) {
	d.t.Helper()
	o := d.get(object)
	if o.Spec.TrustBundle != string(roots.PEM()) || o.Spec.SignerName != signer || o.Labels[owned.ManagedBy] != owned.Manager {
		d.t.Fatalf("the object is %+v\n%s", o, &d.log)
	}
	if err := d.Ready(); err != nil {
		d.t.Fatalf("not ready: %v", err)
	}
}

func (d *desk) lines(text string) int { return strings.Count(d.log.String(), text) }

func foreign(labels map[string]string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: object, UID: "foreign", Labels: labels},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: "theirs"},
	}
}
