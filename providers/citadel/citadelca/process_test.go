package citadelca

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// run starts the provider by a stock go-plugin host, which logs to log.
func run(t *testing.T, log *testkit.Log) *wire.Remote {
	t.Helper()
	return testkit.Start(t, exec.Command(testkit.Program(t, "countersign-provider-citadel")), log) //nolint:gosec // built by the tests
}

func TestProcessSignsAndPassesErrorsOn(t *testing.T) {
	t.Parallel()
	server, log := start(t), &testkit.Log{}
	ctx, remote := testkit.Within(t, time.Minute), run(t, log)
	metadata, err := remote.Metadata(ctx)
	if err != nil || metadata.Name != "citadel" || !slices.Equal(metadata.Abilities, []wire.Ability{wire.CertificateAuthority}) {
		t.Errorf("%v, %v", metadata, err)
	}
	for _, setting := range []string{"address", "root_file", "server_name", "cluster_id", "cert_signer", "headers", "client_cert_file", "client_key_file", "allow_token_over_plaintext"} {
		if !strings.Contains(metadata.SettingsSchema, `"`+setting+`"`) || strings.Contains(metadata.SettingsSchema, "Log") {
			t.Errorf("the schema lacks %s or has the log: %s", setting, metadata.SettingsSchema)
		}
	}
	for says, settings := range map[string]map[string]any{
		`address is "istiod"`:                {"address": "istiod"},
		"did you mean root_file?":            {"rootfile": "x"},
		"headers":                            {"headers": map[string]any{"x": 1}},
		`headers has "authorization"`:        {"headers": map[string]any{"authorization": "x"}},
		"set both or neither":                {"client_key_file": "x"},
		"the setting cluster_id is a number": {"cluster_id": 1},
	} {
		mustBe(t, remote.Configure(ctx, settings), ca.ErrInvalid, says)
	}
	settings := server.settings(t)
	if err := remote.Configure(ctx, map[string]any{"address": settings.Address, "root_file": settings.RootFile, "cluster_id": "c", "headers": map[string]any{"X": "y"}}); err != nil {
		t.Fatal(err)
	}
	req, check := ask(t, theToken)
	reply, err := remote.CSRSign(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Passes(t, reply, check)
	call := server.last(t)
	if call.metadata["authorization"][0] != "Bearer "+theToken.Reveal() || call.metadata["clusterid"][0] != "c" || call.metadata["x"][0] != "y" {
		t.Errorf("the metadata are %v", call.metadata)
	}
	server.next(failing(7, "not for "+theToken.Reveal()))
	_, err = remote.CSRSign(ctx, req)
	mustBe(t, err, ca.ErrDenied, settings.Address+": not for (secret)")
	if text := log.Take(); strings.Contains(text, theToken.Reveal()) || strings.Contains(text, "PRIVATE KEY") {
		t.Error("the token or a key is in the log")
	}
}

func TestAgentWithIstioVariablesGetsCertificate(t *testing.T) {
	t.Parallel()
	server := start(t)
	dir := testkit.Folder(t)
	tokens := filepath.Join(dir, "var/run/secrets/tokens")
	if err := os.MkdirAll(tokens, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tokens, "istio-token"), []byte("first.token.of-the-test\n"))
	a := testkit.StartAgent(t, dir, testkit.Program(t, "countersign-provider-citadel"), nil, []string{
		"CA_ADDR=" + server.address, "CA_ROOT_CA=" + server.settings(t).RootFile, "TRUST_DOMAIN=example.org",
		"POD_NAMESPACE=shop", "SERVICE_ACCOUNT=web", "ISTIO_META_CLUSTER_ID=Kubernetes", "SECRET_TTL=2s", "COUNTERSIGN_SOCKET=./s",
	})
	if out := a.Watch(1); !strings.Contains(out, webID) {
		t.Errorf("watched %s", out)
	}
	write(t, filepath.Join(tokens, "istio-token"), []byte("second.token.of-the-test\n"))
	a.Watch(3) // the current certificate, and two rotations: one may have begun with the first token
	calls := server.calls()
	first, last := calls[0].metadata, calls[len(calls)-1].metadata
	if first["authorization"][0] != "Bearer first.token.of-the-test" || last["authorization"][0] != "Bearer second.token.of-the-test" || first["clusterid"][0] != "Kubernetes" {
		t.Errorf("the first call came with %v, the last with %v", first, last)
	}
	if text := a.Take(); strings.Contains(text, "token.of-the-test") || strings.Contains(text, "PRIVATE KEY") || !strings.Contains(text, "citadel") {
		t.Errorf("the log is\n%s", text)
	}
}
