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
	authority := catest.NewCA(catest.Options{})
	cfg := config(t, authority)
	cfg.Authorities[0].Client = struct{ ca.Client }{authority} // roots come with replies
	cfg.Secrets[0].TTL = 5 * time.Second
	running(t, cfg)
	leaf, roots := follow(t, cfg.Socket.Path, "default"), follow(t, cfg.Socket.Path, "ROOTCA")
	authority.Rotate()

	told := roots.next(t)
	early := make(chan *discoveryv3.DiscoveryResponse, 1)
	go func() { early <- leaf.next(t) }()
	select {
	case <-early:
		t.Fatal("the leaf did not wait for the acknowledgement of its root")
	case <-time.After(time.Second):
	}
	roots.acknowledge(t, told)
	began := time.Now()
	<-early
	if took := time.Since(began); took < 150*time.Millisecond || took > 3*time.Second {
		t.Errorf("the leaf came %s after the acknowledgement", took)
	}
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
	if err := f.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{name}}); err != nil {
		t.Fatal(err)
	}
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
	if err := f.Send(&discoveryv3.DiscoveryRequest{
		ResourceNames: []string{f.name}, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce(),
	}); err != nil {
		t.Error(err)
	}
}
