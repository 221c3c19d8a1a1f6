package awspca

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func farAway() time.Time { return time.Now().Add(24 * time.Hour) }

func TestProcessSignsWithKeysAndHidesThem(t *testing.T) {
	t.Parallel()
	s, log := newService(pki.ECDSAP256), &testkit.Log{}
	s.listen(t)
	process := exec.Command(testkit.Program(t, "countersign-provider-aws")) //nolint:gosec // built by the tests
	process.Env = os.Environ()
	remote := testkit.Start(t, process, log)
	ctx := testkit.Within(t, 2*time.Minute)
	metadata, err := remote.Metadata(ctx)
	if err != nil || metadata.Name != "aws" || !slices.Equal(metadata.Abilities, []wire.Ability{wire.CertificateAuthority, wire.RootSource, wire.RootWatcher, wire.TokenExchanger, wire.NamesFromRequest}) {
		t.Errorf("%v, %v", metadata, err)
	}
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_arn": "mesh"}), ca.ErrInvalid, `ca_arn is "mesh": it takes text that matches ^arn:aws`)
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_arn": theARN, "secret_access_key": theKeys.SecretAccessKey}), ca.ErrInvalid, "are for credentials keys")
	must(t, remote.Configure(ctx, map[string]any{
		"ca_arn": theARN, "endpoint": s.URL, "root_file": s.rootFile(t), "access_key_id": theKeys.AccessKeyID, "secret_access_key": theKeys.SecretAccessKey,
	}))
	req, key := ask(t)
	reply, err := remote.CSRSign(ctx, req)
	must(t, err)
	testkit.Passes(t, reply, testkit.Check(t, req, key))
	s.next("IssueCertificate", refuse(400, "AccessDeniedException", "not with "+theKeys.SecretAccessKey))
	req, _ = ask(t)
	_, err = remote.CSRSign(ctx, req)
	mustBe(t, err, ca.ErrDenied, theARN+": AccessDeniedException: not with (secret)")
	mustHide(t, log.Take())
}

// The workload's token goes to the token service alone; the host keeps what that gives, so
// that rotations cost no exchange.
func TestAgentRotatesWithItsOwnTokenThroughOutageAndNewRoot(t *testing.T) {
	t.Parallel()
	s, dir := newService(pki.ECDSAP256), testkit.Folder(t)
	s.listen(t)
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(theJWT.Reveal()+"\n"), 0o600))
	entry := map[string]any{"name": "aws", "token": map[string]any{"file": filepath.Join(dir, "token")}, "settings": s.socket(t, byToken())}
	config := map[string]any{"providers": []any{entry}, "trust_domain": "example.org", "namespace": "shop", "service_account": "web", "ttl": "2s", "socket": map[string]any{"path": filepath.Join(dir, "s")}}
	must(t, os.WriteFile(filepath.Join(dir, "c.yaml"), jsonOf(t, config), 0o600))
	a := testkit.StartAgent(t, dir, testkit.Program(t, "countersign-provider-aws"), []string{"--config", filepath.Join(dir, "c.yaml")}, nil)
	if out := a.Watch(1); !strings.Contains(out, webID) {
		t.Errorf("watched %s", out)
	}
	s.next("IssueCertificate", saying(503, ""))
	s.next("GetCertificate", saying(503, ""))
	a.Watch(3) // the current certificate, and two rotations
	s.set(func() { s.by = newAuthority(pki.ECDSAP256) })
	a.Watch(3)
	if n := s.count("AssumeRoleWithWebIdentity"); n != 1 || s.certificates() < 3 {
		t.Errorf("%d exchanges for %d certificates", n, s.certificates())
	}
	text := a.Take()
	if mustHide(t, text); strings.Count(text, "root added") != 2 || strings.Contains(text, "PRIVATE KEY") {
		t.Errorf("the log is\n%s", text)
	}
}
