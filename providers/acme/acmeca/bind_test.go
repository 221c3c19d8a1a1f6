//go:build e2e

package acmeca

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// BIND with the zone of docs/public-certificates.md takes updates by the page's script.
func TestRealPageNameServer(t *testing.T) {
	named, nsupdate := foreign(t, "COUNTERSIGN_BIND"), foreign(t, "COUNTERSIGN_NSUPDATE")
	dir, address := testkit.Folder(t), testkit.FreeAddress(t)
	server := startBIND(t, named, dir, address)
	p := startPebble(t, odd{names: address})
	script := filepath.Join(dir, "acme-dns")
	text := strings.NewReplacer("server ns1.example.org", fmt.Sprintf("server 127.0.0.1 %d", portOf(t, address)), "nsupdate", nsupdate,
		"/etc/countersign", dir).Replace(blocks(t, "sh")[0])
	must(t, os.WriteFile(script, []byte(text), 0o700))
	settings := p.settings(t)
	settings.Challenge, settings.Listen, settings.DNSCommand = DNS01, "", []string{script}
	c := p.open(t, settings)
	certified(t, c, "*.example.org", "example.org", "www.example.org") // the first two have one record, with two values
	for _, name := range []string{"_acme-challenge.example.org", "_acme-challenge.www.example.org"} {
		if left, err := server.LookupTXT(t.Context(), name); len(left) > 0 {
			t.Errorf("%s has %d values left, %v", name, len(left), err)
		}
	}
	_, err := c.CSRSign(t.Context(), requestFor(t, "ftp.example.org"))
	if err == nil || !strings.Contains(err.Error(), "dns_command: present _acme-challenge.ftp.example.org.") || !strings.Contains(err.Error(), "REFUSED") {
		t.Errorf("a name that the policy does not list: %v", err)
	}
}

// startBIND runs it with the page's zone, and returns how to ask it.
func startBIND(t *testing.T, named, dir, address string) *net.Resolver {
	t.Helper()
	own := filepath.Join(dir, "named") // AppArmor's profile of the installed one forbids this folder
	binary, err := os.ReadFile(named)
	must(t, err)
	must(t, os.WriteFile(own, binary, 0o700))
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	zone := strings.NewReplacer("/etc/bind", dir, "/var/lib/bind", dir).Replace(blocks(t, "named")[0])
	for name, content := range map[string]string{
		"acme.key": fmt.Sprintf("key \"acme\" {\n\talgorithm hmac-sha256;\n\tsecret %q;\n};\n", base64.StdEncoding.EncodeToString(secret)),
		"named.conf": fmt.Sprintf(`options {
	directory %q; listen-on port %d { 127.0.0.1; }; listen-on-v6 { none; };
	recursion no; dnssec-validation no; pid-file none; session-keyfile none; lock-file none;
};
controls { };
%s`, dir, portOf(t, address), zone),
		"example.org.zone": "$TTL 60\n@ SOA ns1 admin 1 60 60 60 60\n@ NS ns1\nns1 A 127.0.0.1\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	run(t, nil, own, "-g", "-c", filepath.Join(dir, "named.conf"))
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	eventually(t, "BIND answers", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := resolver.LookupHost(ctx, "ns1.example.org")
		return err
	})
	return resolver
}
