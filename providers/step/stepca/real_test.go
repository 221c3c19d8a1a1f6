//go:build e2e

package stepca

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// realStep is a running step-ca with one JWK provisioner, "admin".
type realStep struct {
	folder    string
	authority *catest.CA // its root and intermediate
	settings  Settings
}

// startStep runs step-ca until the test ends, and returns when it answers.
func startStep(t *testing.T) realStep {
	t.Helper()
	binary := os.Getenv("COUNTERSIGN_STEP_CA")
	if binary == "" {
		t.Fatal("COUNTERSIGN_STEP_CA does not name step-ca: `make check NAME=step` builds it")
	}
	folder := t.TempDir()
	r := realStep{folder: folder, authority: catest.NewCA(catest.Options{Intermediates: 1})}
	for name, content := range r.authority.IstioFiles() {
		must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	private := newJWK(t)
	text, err := private.MarshalJSON()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "key.json"), text, 0o600))
	address := testkit.FreeAddress(t)
	config, err := json.Marshal(map[string]any{
		"root": filepath.Join(folder, "root-cert.pem"), "crt": filepath.Join(folder, "ca-cert.pem"), "key": filepath.Join(folder, "ca-key.pem"),
		"address": address, "dnsNames": []string{"127.0.0.1"}, "logger": map[string]string{"format": "text"},
		"db":        map[string]string{"type": "badgerv2", "dataSource": filepath.Join(folder, "db")},
		"authority": map[string]any{"provisioners": []any{map[string]any{"type": "JWK", "name": "admin", "key": private.Public()}}},
	})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "ca.json"), config, 0o600))
	run(t, binary, filepath.Join(folder, "ca.json"), folder)
	r.settings = Settings{
		URL: urlOf("https://" + address), RootFile: setting.File(filepath.Join(folder, "root-cert.pem")),
		Provisioner: "admin", KeyFile: setting.File(filepath.Join(folder, "key.json")),
	}
	return r
}

func run(t *testing.T, binary, config, home string) {
	t.Helper()
	var output strings.Builder
	cmd := exec.Command(binary, config)
	cmd.Env = append(os.Environ(), "STEPPATH="+home, "HOME="+home)
	cmd.Stdout, cmd.Stderr = &output, &output
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("step-ca:\n%s", output.String())
		}
	})
}

// open returns the provider's CA, when step-ca answers.
func (r realStep) open(t *testing.T, settings Settings) *CA {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		c, err := Open(ctx, settings)
		if err == nil {
			if _, err = c.Roots(ctx); err == nil {
				return c
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("step-ca does not answer: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestRealStepCASignsByTokenAndRenewsByCertificate(t *testing.T) {
	r := startStep(t)
	settings := r.settings
	settings.ClientCertFile, settings.ClientKeyFile = filepath.Join(r.folder, "held.pem"), filepath.Join(r.folder, "held-key.pem")
	c := r.open(t, settings)
	for _, way := range []string{"token", "certificate", "certificate"} {
		req, key := testkit.Request(t, web, "web.example.org")
		id, err := pki.IdentityOfCSR(must2(pki.ParseCSR(req.CSR)))
		must(t, err)
		cert, err := c.CSRSign(t.Context(), req)
		must(t, err)
		chain, err := pki.ParseCertificates(cert.Chain)
		must(t, err)
		got, err := pki.IdentityOf(chain[0])
		must(t, err)
		if !got.Equal(id) || !pki.SameKey(chain[0].PublicKey, key.Public()) || len(chain) != 2 {
			t.Errorf("by %s: %s, %d certificates", way, got, len(chain))
		}
		private, err := pki.EncodeKey(key)
		must(t, err)
		must(t, os.WriteFile(settings.ClientCertFile, cert.Chain, 0o600))
		must(t, os.WriteFile(settings.ClientKeyFile, private, 0o600))
		// What follows is by the certificate alone.
		c.settings.KeyFile, c.settings.Provisioner = "", ""
	}
	roots, err := c.Roots(t.Context())
	must(t, err)
	if string(roots) != string(r.authority.Bundle().PEM()) {
		t.Errorf("roots: %s", roots)
	}
}

func TestRealStepCARefusesReplayedTokenWithReason(t *testing.T) {
	r := startStep(t)
	minter := r.open(t, r.settings)
	settings := r.settings
	settings.KeyFile, settings.Provisioner = "", ""
	c := r.open(t, settings)
	req, _ := testkit.Request(t, web)
	token, err := minter.oneTimeToken(req, time.Now())
	must(t, err)
	req.Token = token
	_, err = c.CSRSign(t.Context(), req)
	must(t, err)
	_, err = c.CSRSign(t.Context(), req)
	if !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(fmt.Sprint(err), token.Reveal()) {
		t.Errorf("the same token again: %v", err)
	}
	stolen, _ := testkit.Request(t, web)
	if stolen.Token, err = minter.oneTimeToken(req, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CSRSign(t.Context(), stolen); !errors.Is(err, ca.ErrDenied) {
		t.Errorf("a token of another CSR: %v", err)
	}
}

func TestRealStepCAByFingerprintRefusesLongTTL(t *testing.T) {
	r := startStep(t)
	settings := r.settings
	settings.RootFile, settings.RootFingerprint = "", pki.Fingerprint(r.authority.Bundle().Certificates()[0])
	settings.MaxTTL = 1000 * time.Hour
	c := r.open(t, settings)
	req, _ := testkit.Request(t, web)
	req.TTL = 999 * time.Hour
	if _, err := c.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrDenied) {
		t.Errorf("999 hours: %v", err)
	}
	req.TTL = time.Hour
	_, err := c.CSRSign(t.Context(), req)
	must(t, err)
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
