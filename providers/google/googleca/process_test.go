package googleca

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// run starts the provider by a stock go-plugin host, which logs to log.
func run(t *testing.T, log *testkit.Log) *wire.Remote {
	t.Helper()
	process := exec.Command(testkit.Program(t, "countersign-provider-google")) //nolint:gosec // built by the tests
	process.Env = append(os.Environ(), "GOOGLE_APPLICATION_CREDENTIALS="+filepath.Join(scratch, "none.json"), "GOOGLE_SDK_GO_LOGGING_LEVEL=debug")
	return testkit.Start(t, process, log)
}

// socket has the service answer on a real one, too, and returns the settings for it.
func (s *service) socket(t *testing.T) Settings {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t, listener)
	settings := s.settings()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	settings.Endpoint = "localhost:" + port
	return settings
}

func TestProcessSignsReportsRootsAndPassesErrorsOn(t *testing.T) {
	t.Parallel()
	server, log := start(t), &testkit.Log{}
	settings := server.socket(t)
	remote := run(t, log)
	ctx := testkit.Within(t, time.Minute)
	metadata, err := remote.Metadata(ctx)
	if err != nil || metadata.Name != "google" || !slices.Equal(metadata.Abilities, []wire.Ability{wire.CertificateAuthority, wire.RootSource, wire.RootWatcher, wire.TokenExchanger, wire.NamesFromRequest}) {
		t.Errorf("%v, %v", metadata, err)
	}
	for _, setting := range []string{"protocol", "ca_pool", "issuing_ca", "certificate_template", "subject_mode", "labels", "roots_interval", "endpoint", "universe_domain", "root_file", "quota_project", "credentials", "credentials_file", "location", "exchange", "audience", "service_account", "sts_url", "iam_url", "allow_other_hosts"} {
		if !strings.Contains(metadata.SettingsSchema, `"`+setting+`"`) || strings.Contains(metadata.SettingsSchema, "Log") {
			t.Errorf("the schema lacks %s or has the log: %s", setting, metadata.SettingsSchema)
		}
	}
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_pool": "mesh"}), ca.ErrInvalid, `ca_pool is "mesh": it takes text that matches ^$|^projects/`)
	mustBe(t, remote.Configure(ctx, map[string]any{"capool": thePool}), ca.ErrInvalid, "did you mean ca_pool?")
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_pool": thePool, "exchange": map[string]any{"audiense": theAudience}}), ca.ErrInvalid, "audience")
	mustBe(t, remote.Configure(ctx, map[string]any{"protocol": "meshca"}), ca.ErrInvalid, "endpoint is not set: the protocol meshca needs")
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_pool": thePool}), ca.ErrUnavailable, "credentials adc", "none.json")
	if err := remote.Configure(ctx, map[string]any{"ca_pool": thePool, "endpoint": settings.Endpoint, "root_file": server.root, "credentials": "token"}); err != nil {
		t.Fatal(err)
	}
	req, check := ask(t)
	reply, err := remote.CSRSign(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Passes(t, reply, check)
	if got := server.last(t).metadata["authorization"]; got[0] != "Bearer "+theToken.Reveal() {
		t.Error("the token was not sent")
	}
	enough := errors.New("enough")
	if err := remote.WatchRoots(ctx, func(roots []byte) error {
		if string(roots) != string(server.pool.Bundle().PEM()) {
			t.Errorf("notified %s", roots)
		}
		return enough
	}); !errors.Is(err, enough) {
		t.Error(err)
	}
	server.next(failing(busy(t, 8, "not for "+theToken.Reveal())))
	_, err = remote.CSRSign(ctx, req)
	mustBe(t, err, ca.ErrRateLimited, thePool+": not for (secret)")
	if ca.RetryAfter(err) != time.Minute {
		t.Errorf("to come back after %s", ca.RetryAfter(err))
	}
	if text := log.Take(); strings.Contains(text, theToken.Reveal()) || strings.Contains(text, "PRIVATE KEY") {
		t.Error("the token or a key is in the log")
	}
}

// agent runs `countersign agent` with one entry, this provider's, and a token file.
func agent(t *testing.T, dir string, settings Settings) *testkit.Agent {
	t.Helper()
	write(t, filepath.Join(dir, "token"), []byte(theToken.Reveal()+"\n"))
	entry := map[string]any{"name": "google", "token": map[string]any{"file": filepath.Join(dir, "token")}, "settings": settings}
	config := map[string]any{"providers": []any{entry}, "trust_domain": "example.org", "namespace": "shop", "service_account": "web", "ttl": "2s", "socket": map[string]any{"path": filepath.Join(dir, "s")}}
	write(t, filepath.Join(dir, "c.yaml"), inJSON(t, config))
	return testkit.StartAgent(t, dir, testkit.Program(t, "countersign-provider-google"), []string{"--config", filepath.Join(dir, "c.yaml")}, nil)
}

func TestAgentRotatesThroughOutageAndNewCA(t *testing.T) {
	t.Parallel()
	server := start(t)
	a := agent(t, testkit.Folder(t), server.socket(t))
	if out := a.Watch(1); !strings.Contains(out, webID) {
		t.Errorf("watched %s", out)
	}
	server.next(failing(status.Error(codes.Unavailable, "down")), failing(status.Error(codes.Unavailable, "down")))
	a.Watch(3) // the current certificate, and two rotations
	server.pool.Rotate()
	a.Watch(3)
	made, calls, orders := server.certificates(), server.calls(), map[string]string{}
	for _, call := range calls {
		id, csr := call.order.GetRequestId(), call.order.GetCertificate().GetPemCsr()
		if before, again := orders[id]; again && before != csr {
			t.Errorf("the retry %s has another CSR", id)
		}
		orders[id] = csr
	}
	if made > len(orders) || len(calls) < len(orders)+2 {
		t.Errorf("%d certificates were made for %d requests in %d calls", made, len(orders), len(calls))
	}
	if text := a.Take(); strings.Count(text, "root added") != 2 || strings.Contains(text, theToken.Reveal()[:20]) || strings.Contains(text, "PRIVATE KEY") {
		t.Errorf("the log is\n%s", text)
	}
}

// The workload's token goes to the token service alone, and what that gives to the
// service that signs; the host keeps it, so that rotations cost no exchange.
func TestAgentUsesProviderTokenExchange(t *testing.T) {
	t.Parallel()
	server, tokens := start(t), startTokens(t)
	dir, settings := testkit.Folder(t), server.socket(t)
	settings.Credentials, settings.Exchange = "", tokens.settings().Exchange
	settings.RootFile = setting.File(filepath.Join(dir, "roots.pem"))
	write(t, string(settings.RootFile), slices.Concat(read(t, server.root), read(t, tokens.root)))
	a := agent(t, dir, settings)
	if out := a.Watch(3); !strings.Contains(out, webID) {
		t.Errorf("watched %s", out)
	}
	for _, call := range server.calls() {
		if got := call.metadata["authorization"]; got[0] != "Bearer "+federated.Reveal() {
			t.Error("the service was asked with another token")
		}
	}
	if n := tokens.calls(); n != 1 || server.certificates() < 3 {
		t.Errorf("%d exchanges for %d certificates", n, server.certificates())
	}
	if text := a.Take(); strings.Contains(text, theToken.Reveal()[:20]) || strings.Contains(text, federated.Reveal()[:20]) {
		t.Error("a token is in the log")
	}
}
