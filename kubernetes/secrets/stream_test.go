package secrets

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// pipe is an incremental stream in memory.
type pipe struct {
	ctx       context.Context
	requests  chan *discoveryv3.DeltaDiscoveryRequest
	responses chan *discoveryv3.DeltaDiscoveryResponse
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) Recv() (*discoveryv3.DeltaDiscoveryRequest, error) {
	select {
	case req := <-p.requests:
		return req, nil
	case <-p.ctx.Done():
		return nil, io.EOF
	}
}

func (p *pipe) Send(resp *discoveryv3.DeltaDiscoveryResponse) error {
	p.responses <- resp
	return nil
}

// next returns what the stream sent since, acknowledged: names of resources, and of those
// that are removed with a minus.
func (p *pipe) next() (got []string) {
	for {
		synctest.Wait()
		select {
		case resp := <-p.responses:
			for _, resource := range resp.Resources {
				got = append(got, resource.Name)
			}
			for _, name := range resp.RemovedResources {
				got = append(got, "-"+name)
			}
			p.requests <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: TypeURL, ResponseNonce: resp.Nonce}
		default:
			slices.Sort(got)
			return got
		}
	}
}

// reviews is an API server that says yes, no, or an error.
type reviews struct {
	mu    sync.Mutex
	allow bool
	err   error
}

func (r *reviews) set(allow bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allow, r.err = allow, err
}

func (r *reviews) Create(_ context.Context, q *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.Status.Allowed = r.allow
	return q, r.err
}

// onStream runs a test with a stream of shop/web in the cluster home, with the rights
// that the API server gives.
func onStream(t *testing.T, test func(s *scene, api *reviews, p *pipe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := &reviews{allow: true}
		var s *scene
		rights, err := access.New(access.Config{Reviews: func(id string) (access.Reviews, bool) {
			_, ok := s.fleet.Cluster(id)
			return api, ok
		}})
		must(t, err)
		defer rights.Close()
		s = filled(t, func(c *Config) { c.Access = rights })
		engine, err := xds.New(xds.Config[*discovery.Caller]{
			Types: []xds.Type[*discovery.Caller]{s.Type()},
			Admit: func(context.Context) (*discovery.Caller, error) { return caller("home", "shop", "web"), nil },
		})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		p := &pipe{ctx, make(chan *discoveryv3.DeltaDiscoveryRequest, 10), make(chan *discoveryv3.DeltaDiscoveryResponse, 10)}
		var done sync.WaitGroup
		done.Go(func() { _ = engine.StreamDelta(p, TypeURL) })
		p.requests <- &discoveryv3.DeltaDiscoveryRequest{TypeUrl: TypeURL, ResourceNamesSubscribe: []string{
			"kubernetes://foo", "kubernetes://foo-cacert", "kubernetes://bank/own-home", "kubernetes://../x", "configmap://shop/roots",
		}}
		test(s, api, p)
		cancel()
		done.Wait()
		engine.Close(nil)
	})
}

func expect(t *testing.T, when string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, not %v", when, got, want)
	}
}

const (
	key   = "kubernetes://foo"
	ca    = "kubernetes://foo-cacert"
	roots = "configmap://shop/roots"
)

func TestBadNameAffectsNoOtherAndChangeIsSentAlone(t *testing.T) {
	onStream(t, func(s *scene, _ *reviews, p *pipe) {
		expect(t, "first", p.next(), "-kubernetes://../x", "-kubernetes://bank/own-home", roots, key, ca)
		s.at("home").put("shop/foo", tlsOf("home foo, rotated"))
		s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
		time.Sleep(100 * time.Millisecond)
		expect(t, "rotated", p.next(), key, ca)
		s.at("home").put("shop/foo", tlsOf("home foo, rotated"))
		s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
		time.Sleep(100 * time.Millisecond)
		expect(t, "the same content", p.next())
		s.at("home").remove("shop/foo")
		s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
		time.Sleep(100 * time.Millisecond)
		expect(t, "deleted", p.next(), "-"+key, "-"+ca)
	})
}

func TestRevokedRightSendsRemoval(t *testing.T) {
	onStream(t, func(s *scene, api *reviews, p *pipe) {
		_ = p.next()
		api.set(false, nil)
		time.Sleep(4 * time.Minute)
		expect(t, "before the yes has ended", p.next())
		time.Sleep(time.Minute)
		expect(t, "then", p.next(), "-"+key)
		api.set(true, nil)
		time.Sleep(time.Minute)
		expect(t, "given back", p.next(), key)
		api.set(true, context.DeadlineExceeded)
		time.Sleep(30 * time.Minute)
		expect(t, "an API server that is away", p.next())
		s.at("home").put("shop/foo", tlsOf("home foo, rotated"))
		s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
		time.Sleep(100 * time.Millisecond)
		expect(t, "a new version meanwhile", p.next(), key, ca)
		time.Sleep(30 * time.Minute)
		expect(t, "away for too long", p.next(), "-"+key)
	})
}

func TestRemovedClusterRemovesAndRestoresSecrets(t *testing.T) {
	onStream(t, func(s *scene, api *reviews, p *pipe) {
		_ = p.next()
		home := s.at("home")
		s.fleet.off("home")
		s.Changed(Event{Cluster: "home"})
		time.Sleep(2 * time.Second)
		expect(t, "not connected", p.next())
		s.fleet.set("home", nil)
		s.Changed(Event{Cluster: "home"})
		time.Sleep(2 * time.Second)
		expect(t, "gone", p.next(), "-"+roots, "-"+key, "-"+ca)
		s.fleet.set("home", home)
		s.Changed(Event{Cluster: "home"})
		time.Sleep(2 * time.Second)
		expect(t, "back", p.next(), roots, key, ca)
		// Another API server under the same name, which does not allow it.
		api.set(false, nil)
		s.Changed(Event{Cluster: "home"})
		time.Sleep(2 * time.Second)
		expect(t, "swapped", p.next(), "-"+key)
	})
}
