package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// go-spiffe gets a JWT-SVID that the provider file signs, and verifies it by the bundle and by
// the agent. The keys outlive the agent.
func TestGoSPIFFEHasJWTSVIDs(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(proctest.Folder(t), "spiffe")
	a := startAgent(t, agentConfig{selfSigned: true, workloadAPI: map[string]any{
		"socket": socket, "identities": []map[string]any{{"name": "client", "hint": "out"}, {"name": "default", "hint": "in"}},
		"jwt_svid": map[string]any{"audiences": []string{"database", "https://*"}, "ttl": "10m"},
	}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	addr := workloadapi.WithAddr("unix://" + socket)
	poll(t, "both identities", func() bool {
		svids, err := workloadapi.FetchX509SVIDs(ctx, addr)
		return err == nil && len(svids) == 2
	})
	source, err := workloadapi.NewJWTSource(ctx, workloadapi.WithClientOptions(addr)) // it waits for the keys
	mustDo(t, err)
	defer source.Close()
	svid, err := source.FetchJWTSVID(ctx, jwtsvid.Params{Audience: "database", ExtraAudiences: []string{"https://queue"}})
	mustDo(t, err)
	if svid.ID.String() != clientID || svid.Hint != "out" {
		t.Errorf("got %v", svid.ID)
	}
	token := svid.Marshal()
	signature := token[strings.LastIndex(token, ".")+1:]
	verify := func(audience string) error {
		_, err := jwtsvid.ParseAndValidate(token, source, []string{audience})
		return err
	}
	if err := verify("https://queue"); err != nil {
		t.Error(err)
	}
	if err := verify("other"); err == nil {
		t.Error("valid for another audience")
	}
	if got, err := workloadapi.ValidateJWTSVID(ctx, token, "database", addr); err != nil || got.ID != svid.ID {
		t.Errorf("the agent: %v", err)
	}
	if _, err := workloadapi.ValidateJWTSVID(ctx, token, "other", addr); err == nil {
		t.Error("the agent takes it for another audience")
	}
	all, err := source.FetchJWTSVIDs(ctx, jwtsvid.Params{Audience: "database"})
	if err != nil || len(all) != 2 || all[1].Hint != "in" {
		t.Errorf("%d identities, %v", len(all), err)
	}
	for what, params := range map[string]jwtsvid.Params{
		"audience": {Audience: "http://x"}, "identity": {Audience: "database", Subject: spiffeid.RequireFromString(clientID + "/other")},
	} {
		if _, err := source.FetchJWTSVID(ctx, params); err == nil || !strings.Contains(err.Error(), "PermissionDenied") {
			t.Errorf("another %s: %v", what, err)
		}
	}
	for _, want := range []string{
		`countersign_jwt_svid_signed_total{provider="file"} 4`, `countersign_jwt_svid_refused_audiences_total{provider="file"} 1`, `countersign_jwt_svid_held{provider="file"} 4`,
		`countersign_jwt_svid_keys{provider="file"} `, `countersign_jwt_svid_failures_total{provider="file",reason="reply"} 0`,
	} {
		if page := getPage(t, a.status, "/metrics"); !strings.Contains(page, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	if strings.Contains(a.log.String(), signature) {
		t.Error("the agent's log has a token")
	}
	for path, want := range map[string]string{"/status": `"state": "offered"`, "/": "JWT-SVIDs"} {
		if page := getPage(t, a.status, path); !strings.Contains(page, want) || strings.Contains(page, signature) {
			t.Errorf("%s has no %s, or a token", path, want)
		}
	}
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	later, err := workloadapi.NewJWTSource(ctx, workloadapi.WithClientOptions(addr))
	mustDo(t, err)
	defer later.Close()
	if _, err := jwtsvid.ParseAndValidate(token, later, []string{"database"}); err != nil {
		t.Errorf("after the agent was killed: %v", err)
	}
}
