package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gospiffe "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

const witService = "https://service.example.org/path"

// witClient is the standard's generated client, as go-spiffe has it.
type witClient struct {
	gospiffe.SpiffeWorkloadAPIClient
	ctx context.Context // with the header
}

func newWITClient(t *testing.T, socket string) witClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	mustDo(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "workload.spiffe.io", "true"), patience)
	t.Cleanup(cancel)
	return witClient{gospiffe.NewSpiffeWorkloadAPIClient(conn), ctx}
}

// svids returns what the first message of a stream has.
func (c witClient) svids() ([]*gospiffe.WITSVID, error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := c.FetchWITSVID(ctx, &gospiffe.WITSVIDRequest{})
	if err != nil {
		return nil, err
	}
	got, err := stream.Recv()
	return got.GetSvids(), err
}

// keys returns the WIT keys of the agent's trust domain.
func (c witClient) keys() (string, error) { return c.keysOf(trustDomain) }

// keysOf returns those of a trust domain, empty if the agent does not know them.
func (c witClient) keysOf(domain string) (string, error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := c.FetchWITBundles(ctx, &gospiffe.WITBundlesRequest{})
	if err != nil {
		return "", err
	}
	got, err := stream.Recv()
	return got.GetBundles()["spiffe://"+domain], err
}

// fetch returns both WIT-SVIDs and a verifier with the keys.
func (c witClient) fetch(t *testing.T) ([]*gospiffe.WITSVID, *witsvid.Verifier) {
	t.Helper()
	var svids []*gospiffe.WITSVID
	poll(t, "both WIT-SVIDs", func() (both bool) {
		var err error
		svids, err = c.svids()
		mustDo(t, err)
		return len(svids) == 2
	})
	keys, err := c.keys()
	mustDo(t, err)
	v, err := witsvid.NewVerifier(witsvid.VerifierConfig{})
	mustDo(t, err)
	mustDo(t, v.SetKeys(trustDomain, []byte(keys)))
	return svids, v
}

// checkWIT fails unless the verifier accepts the WIT-SVID with a proof, and the proof once and for its
// audience alone.
func checkWIT(t *testing.T, v *witsvid.Verifier, svid *gospiffe.WITSVID, id string) {
	t.Helper()
	wit := ca.Token(svid.GetWitSvid())
	proof, err := witsvid.Prove(wit, []byte(svid.GetWitSvidKey()), witService, time.Now())
	mustDo(t, err)
	if _, err := v.Verify(wit, proof, witService+"/other"); err == nil {
		t.Error("the proof is accepted for another audience")
	}
	got, err := v.Verify(wit, proof, witService)
	if err != nil || got.ID != id || svid.GetSpiffeId() != id {
		t.Errorf("the WIT-SVID of %q is that of %q: %v", svid.GetSpiffeId(), got.ID, err)
	}
	if left := time.Until(got.Ends); left > 5*time.Minute || left < 2*time.Minute { // it may be some restarts old
		t.Errorf("it lives for %s", left)
	}
	if _, err := v.Verify(wit, proof, witService); err == nil {
		t.Error("the proof is accepted twice")
	}
}

// secretsOfWIT returns the signature of a WIT-SVID and the private part of its key.
func secretsOfWIT(t *testing.T, svid *gospiffe.WITSVID) []string {
	t.Helper()
	var key struct{ D string }
	mustDo(t, json.Unmarshal([]byte(svid.GetWitSvidKey()), &key))
	token := svid.GetWitSvid()
	return []string{token[strings.LastIndex(token, ".")+1:], key.D}
}

// The standard's client gets WIT-SVIDs that the provider file signs, and sdk/witsvid verifies them with
// proofs. The authority's keys outlive the agent, the WIT-SVIDs' keys do not.
func TestStandardClientHasWITSVIDs(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(proctest.Folder(t), "spiffe")
	a := startAgent(t, agentConfig{selfSigned: true, experiments: []string{"wit-svid"}, workloadAPI: map[string]any{
		"socket": socket, "identities": []map[string]any{{"name": "client", "hint": "out"}, {"name": "default", "hint": "in"}},
	}})
	client := newWITClient(t, socket)
	first, v := client.fetch(t)
	checkWIT(t, v, first[0], clientID)
	checkWIT(t, v, first[1], envoyID)
	if first[0].GetHint() != "out" || first[1].GetHint() != "in" {
		t.Errorf("the hints are %q and %q", first[0].GetHint(), first[1].GetHint())
	}
	if _, err := witsvid.Prove(ca.Token(first[0].GetWitSvid()), []byte(first[1].GetWitSvidKey()), witService, time.Now()); err == nil {
		t.Error("two identities have one key")
	}
	shown := fmt.Sprint(a.log.String(), getPage(t, a.status, "/"), getPage(t, a.status, "/status"), getPage(t, a.status, "/metrics"))
	for _, secret := range append(secretsOfWIT(t, first[0]), secretsOfWIT(t, first[1])...) {
		if strings.Contains(shown, secret) {
			t.Error("the log or a page has a WIT-SVID or its key")
		}
	}
	for _, want := range []string{"WIT-SVIDs (experimental)", `"wit_svids"`, `countersign_wit_svid_signed_total{provider="file"} 2`} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not on the pages", want)
		}
	}
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	later, v := newWITClient(t, socket).fetch(t)
	checkWIT(t, v, later[0], clientID)
	checkWIT(t, v, first[0], clientID)
	if later[0].GetWitSvidKey() == first[0].GetWitSvidKey() {
		t.Error("a key outlived the agent")
	}
}

// An agent publishes its WIT keys, and a workload of an agent that follows its bundle verifies its
// WIT-SVIDs with them.
func TestWITSVIDOfFederatedTrustDomainIsVerified(t *testing.T) {
	t.Parallel()
	address, dir := net.JoinHostPort("127.0.0.1", proctest.FreePort(t)), proctest.Folder(t)
	a := startAgent(t, agentConfig{
		experiments: []string{"wit-svid", "wit-bundle"}, publish: map[string]any{"address": address},
		workloadAPI: map[string]any{"socket": filepath.Join(dir, "ours")},
	})
	w := startWorkload(t, a.socket, "default")
	initial := filepath.Join(dir, "initial.pem")
	writeWhole(t, initial, w.bundle().PEM())
	const partner = "partner.example"
	startAgent(t, agentConfig{
		domain: partner, selfSigned: true, experiments: []string{"wit-svid"}, workloadAPI: map[string]any{"socket": filepath.Join(dir, "theirs")},
		workload:  map[string]any{"name": "default", "spiffe_id": "spiffe://" + partner + "/web"},
		endpoints: []map[string]any{{"trust_domain": trustDomain, "url": "https://" + address, "server_id": envoyID, "initial_file": initial}},
	})
	theirs, keys := newWITClient(t, filepath.Join(dir, "theirs")), ""
	poll(t, "the WIT keys of the federated trust domain", func() bool {
		var err error
		keys, err = theirs.keysOf(trustDomain)
		mustDo(t, err)
		return strings.Contains(keys, `"wit-svid"`)
	})
	v, err := witsvid.NewVerifier(witsvid.VerifierConfig{})
	mustDo(t, err)
	mustDo(t, v.SetKeys(trustDomain, []byte(keys)))
	svids, err := newWITClient(t, filepath.Join(dir, "ours")).svids()
	mustDo(t, err)
	checkWIT(t, v, svids[0], envoyID)
}

func TestNoWITSVIDsWithoutTheExperiment(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(proctest.Folder(t), "spiffe")
	a := startAgent(t, agentConfig{selfSigned: true, workloadAPI: map[string]any{"socket": socket}})
	client := newWITClient(t, socket)
	if _, err := client.svids(); status.Code(err) != codes.Unimplemented {
		t.Errorf("WIT-SVIDs: %v", err)
	}
	if _, err := client.keys(); status.Code(err) != codes.Unimplemented {
		t.Errorf("WIT bundles: %v", err)
	}
	if page := getPage(t, a.status, "/status"); strings.Contains(page, "wit_svids") {
		t.Error("/status has WIT-SVIDs")
	}
}
