package agent_test

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// Envoy opens a stream for each secret.
func TestLeafFollowsNewRootAcrossStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	authority := catest.NewCA(catest.Options{})
	cfg := config(t, authority)
	cfg.Authorities[0].Client = struct{ ca.Client }{authority}          // roots come with replies
	cfg.Secrets[0].TTL, cfg.Secrets[0].RenewRatio = 10*time.Second, 0.8 // renewed after two seconds
	run(t, cfg)
	leaf, roots := follow(t, cfg.Socket.Path, "default"), follow(t, cfg.Socket.Path, "ROOTCA")
	leaves := leaf.arrivals()
	// An unacknowledged root holds a leaf back for 5 seconds. A machine that stands still for
	// that long proves nothing: try again.
	for try := range 6 {
		authority.Rotate()
		told := roots.next(t)
		for len(leaves) > 0 {
			<-leaves
		}
		select {
		case <-leaves:
			roots.acknowledge(t, told)
			t.Logf("try %d: the leaf did not wait for the acknowledgement", try)
			continue
		case <-time.After(time.Second):
		}
		roots.acknowledge(t, told)
		acknowledged := time.Now()
		took := (<-leaves).Sub(acknowledged)
		t.Logf("try %d: the leaf came %s after the acknowledgement", try, took)
		if took >= 150*time.Millisecond && took < 3*time.Second {
			return
		}
	}
	t.Error("the leaf does not follow the acknowledgement of its root")
}

// followed is a stream of one secret.
type followed struct {
	secretv3.SecretDiscoveryService_StreamSecretsClient
	name string
}

// follow opens a stream and takes the first version.
func follow(t *testing.T, socket, name string) followed {
	t.Helper()
	f := followed{newStream(t, socket), name}
	must(t, f.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{name}}))
	f.acknowledge(t, f.next(t))
	return f
}

func (f followed) next(t *testing.T) *discoveryv3.DiscoveryResponse {
	r, err := f.Recv()
	if err != nil {
		t.Error(err)
	}
	return r
}

func (f followed) acknowledge(t *testing.T, r *discoveryv3.DiscoveryResponse) {
	t.Helper()
	if err := f.accept(r); err != nil {
		t.Error(err)
	}
}

func (f followed) accept(r *discoveryv3.DiscoveryResponse) error {
	return f.Send(&discoveryv3.DiscoveryRequest{
		ResourceNames: []string{f.name}, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce(),
	})
}

// arrivals accepts all that comes until the stream ends, and returns when it came.
func (f followed) arrivals() <-chan time.Time {
	at := make(chan time.Time, 100)
	go func() {
		defer close(at)
		for r, err := f.Recv(); err == nil; r, err = f.Recv() {
			at <- time.Now()
			_ = f.accept(r) // Recv returns why it fails
		}
	}()
	return at
}
