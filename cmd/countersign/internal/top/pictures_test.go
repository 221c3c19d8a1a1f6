//go:build e2e

package top

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
	sdk "github.com/countersign-dev/countersign/sdk/secret"
)

// pictured is an agent of n secrets. In trouble, its provider is away, a tenth of the secrets are not held
// and another tenth ends within the hour.
func pictured(n int, trouble bool) status.Report {
	now := time.Now()
	r := status.Report{
		At: now, Machine: overview.Machine{Host: "edge-1.example.org", PID: 812, Started: now.Add(-49 * time.Hour), Config: "/etc/countersign/countersign.yaml", Socket: "/run/countersign/socket"},
		Providers: []overview.Provider{{Name: "vault", Provider: "vault", Version: "0.1.0", State: "ready", Since: now.Add(-49 * time.Hour), PID: 830, Path: "/usr/lib/countersign/providers/countersign-provider-vault", SHA256: strings.Repeat("4b", 32), Protocol: 1}},
		Streams:   3, OpenStreams: []status.Stream{{ID: 1, Caller: "uid:101", Node: "sidecar~192.0.2.1~web-0.shop~shop.svc.cluster.local", Since: now.Add(-time.Hour)}},
		Outputs: []status.Output{{Name: "nginx", Folder: "/var/lib/countersign/nginx/current", Tells: "/usr/bin/systemctl", State: "current"}},
	}
	root := sdk.Root{Fingerprint: strings.Repeat("0e", 32), Subject: "CN=Example Root R1,O=Example", NotAfter: now.Add(9 * 365 * 24 * time.Hour), Authorities: []string{"vault"}}
	for i := range n {
		name, dns := "default", "www.example.org"
		if i > 0 {
			name = fmt.Sprintf("shop-%03d.example.org", i)
			dns = name
		}
		issued := now.Add(-time.Duration(i%11) * time.Hour)
		item := &sdk.Item{
			Name: name, Kind: sdk.KeyPair, Identity: pki.Identity{DNSNames: []string{dns}}, Serial: fmt.Sprintf("5f2a%028x", i), Fingerprint: strings.Repeat("ab", 32),
			NotBefore: issued, Issued: issued, RenewAt: issued.Add(12 * time.Hour), NotAfter: issued.Add(24 * time.Hour), Authority: "vault", Signer: "pki/web", RootFingerprint: root.Fingerprint,
		}
		r.Secrets = append(r.Secrets, sdk.Status{Name: name, Kind: "key-pair", Authorities: []string{"vault"}, Held: true, Item: item, Asked: dns, Rotations: i % 5})
	}
	bundle := &sdk.Item{Name: "ROOTCA", Kind: sdk.TrustBundle, NotBefore: now.Add(-time.Hour), NotAfter: root.NotAfter, Authority: "vault"}
	r.Secrets = append(r.Secrets, sdk.Status{Name: "ROOTCA", Kind: "trust-bundle", Authorities: []string{"vault"}, Held: true, Item: bundle, Roots: []sdk.Root{root}})
	if trouble {
		spoil(&r, n, now)
	}
	return r
}

func spoil(r *status.Report, n int, now time.Time) {
	failure := &sdk.Failure{Reason: "unavailable", Text: `authority "vault": Post "https://vault.example.org:8200/v1/pki/sign/web": dial tcp 192.0.2.7:8200: connect: connection refused`, At: now.Add(-time.Minute), NextTry: now.Add(10 * time.Second)}
	r.Providers[0].State, r.Providers[0].LastError, r.Providers[0].NextStart, r.Providers[0].Restarts = "backoff", "it ended with exit code 1: vault.example.org: no route to host", now.Add(20*time.Second), 4
	r.Configuration = overview.Configuration{Refused: `secrets.web.ttl is "1 day": write a duration, such as 24h`, At: now.Add(-10 * time.Minute)}
	r.Outputs[0].State, r.Outputs[0].Failure = "not-written", &status.OutputFailure{Text: "open /var/lib/countersign/nginx: no space left on device", At: now, NextTry: now.Add(time.Minute)}
	for i := range n {
		s := &r.Secrets[n-1-i]
		switch {
		case i <= n/10:
			s.Held, s.Item, s.Failure = false, nil, failure
		case i <= n/5:
			s.Item.NotAfter, s.Item.RenewAt, s.Failure = now.Add(time.Duration(i)*time.Minute), now.Add(-10*time.Hour), failure
		}
	}
	for i := range min(n, 20) {
		r.Errors = append(r.Errors, status.Error{At: now.Add(-time.Duration(i) * time.Minute), Count: 7, Where: "secret " + r.Secrets[n-1-i].Name, Reason: "unavailable", Text: failure.Text, Does: "The agent tries again.", Do: "Check the address and the firewall.", Now: i <= n/10})
	}
}

// pages returns the page, and the terminal at 80 and 160 columns, as HTML.
func pages(t *testing.T, r status.Report) map[string]string {
	t.Helper()
	answer := httptest.NewRecorder()
	status.Page(func() status.Report { return r }).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	var json bytes.Buffer
	if err := text.WriteJSON(&json, r, ""); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"page": answer.Body.String(), "top-80": drawn(t, json.Bytes(), 80), "top-160": drawn(t, json.Bytes(), 160)}
}

// drawn is what top shows of a report, in columns.
func drawn(t *testing.T, text []byte, width int) string {
	t.Helper()
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	v := newView([]*source{{address: "unix:/run/countersign/status"}})
	v.take(0, answer{at: time.Now(), report: r})
	var out strings.Builder
	out.WriteString(`<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><body style="margin:8px"><pre style="font:13px monospace">`)
	for _, l := range v.lines(width, time.Now(), func(c cli.Color, s string) string { return fmt.Sprintf("\x01%d\x02%s\x03", c, s) }) {
		out.WriteString(coloured(html.EscapeString(l)) + "\n")
	}
	return out.String()
}

// coloured replaces the marks of the painter.
func coloured(line string) string {
	for c, css := range map[cli.Color]string{cli.Plain: "inherit", cli.Red: "#c33", cli.Yellow: "#b80", cli.Green: "#292"} {
		line = strings.ReplaceAll(line, fmt.Sprintf("\x01%d\x02", c), `<span style="color:`+css+`">`)
	}
	return strings.ReplaceAll(line, "\x03", "</span>")
}

// Pictures of the page and of top, of 5, 50 and 500 secrets, in health and in trouble, light and dark, 1280
// and 390 pixels wide: go test -artifacts keeps them.
func TestPicturesInRealBrowser(t *testing.T) {
	chromium := programs.Foreign(t, "COUNTERSIGN_CHROMIUM")
	for _, n := range []int{5, 50, 500} {
		for mood, trouble := range map[string]bool{"health": false, "trouble": true} {
			for what, page := range pages(t, pictured(n, trouble)) {
				file := filepath.Join(t.ArtifactDir(), fmt.Sprintf("%s-%d-%s", what, n, mood))
				for scheme, number := range map[string]int{"dark": 0, "light": 1} {
					takePicture(t, chromium, page, fmt.Sprintf("%s-%s.png", file, scheme), 1280, number)
					if what == "page" {
						takePicture(t, chromium, page, fmt.Sprintf("%s-%s-narrow.png", file, scheme), 390, number)
					}
				}
			}
		}
	}
}

// height is what a picture shows of a page.
const height = 1600

// takePicture has the browser draw the page into a PNG. A window is never as narrow as a phone, so that
// the page is in a frame.
func takePicture(t *testing.T, chromium, page, file string, width, scheme int) {
	t.Helper()
	framed := filepath.Join(t.TempDir(), "page.html")
	frame := fmt.Sprintf(`<!DOCTYPE html><meta name="color-scheme" content="light dark"><body style="margin:0"><iframe style="border:0" width="%d" height="%d" src="data:text/html;base64,%s"></iframe>`,
		width, height, base64.StdEncoding.EncodeToString([]byte(page)))
	if err := os.WriteFile(framed, []byte(frame), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme), fmt.Sprintf("--window-size=%d,%d", max(width, 500), height),
		"--user-data-dir="+filepath.Join(t.TempDir(), "profile"), "--screenshot="+file, "file://"+framed)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	picture, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	if img, err := png.DecodeConfig(picture); err != nil || img.Width != max(width, 500) {
		t.Errorf("%s is no picture: %v", file, err)
	}
}
