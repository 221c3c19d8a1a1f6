package e2e

import (
	"maps"
	"slices"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// MOSN v1.3.0 has one stream, sends one request for each name with empty version
// and nonce, and lists all names in each acknowledgement.
func TestMOSNDialectIsUnderstood(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{})
	stream, err := openStream(withDeadline(t), dialSDS(t, a.socket))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"default", "ROOTCA", "client"}
	for _, name := range names {
		if err := stream.subscribe(name); err != nil {
			t.Fatal(err)
		}
	}
	m := &mosn{stream: stream, names: names, held: map[string]*tlsv3.Secret{}}
	var unacknowledged []*discoveryv3.DiscoveryResponse
	for len(m.held) < len(names) { // the requests add up, whether or not something is acknowledged
		unacknowledged = append(unacknowledged, m.receive(t))
	}
	for _, response := range unacknowledged {
		m.ack(t, response)
	}
	// From here on the stream is one subscription to all three names.
	before := maps.Clone(m.held)
	for rotated := false; !rotated; {
		m.ack(t, m.receive(t))
		rotated = m.changed(before, "default") && m.changed(before, "client")
	}
	if m.changed(before, "ROOTCA") {
		t.Error("ROOTCA was sent with another content, though no root changed")
	}
}

// mosn is what MOSN has.
type mosn struct {
	stream *sdsStream
	names  []string
	held   map[string]*tlsv3.Secret
	nonces []string
}

// receive takes one response.
func (m *mosn) receive(t *testing.T) *discoveryv3.DiscoveryResponse {
	t.Helper()
	response, err := m.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	m.check(t, response)
	secrets, err := secretsOf(response)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(m.held, secrets)
	return response
}

func (m *mosn) ack(t *testing.T, response *discoveryv3.DiscoveryResponse) {
	t.Helper()
	if err := m.stream.ack(response, m.names...); err != nil {
		t.Fatal(err)
	}
}

func (m *mosn) check(t *testing.T, response *discoveryv3.DiscoveryResponse) {
	t.Helper()
	if response.GetNonce() == "" || slices.Contains(m.nonces, response.GetNonce()) {
		t.Errorf("the nonce %q is empty or was there before", response.GetNonce())
	}
	if len(response.GetResources()) == 0 {
		t.Error("a response without a secret")
	}
	m.nonces = append(m.nonces, response.GetNonce())
}

func (m *mosn) changed(since map[string]*tlsv3.Secret, name string) bool {
	return !proto.Equal(m.held[name], since[name])
}
