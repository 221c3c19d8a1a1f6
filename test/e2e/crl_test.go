package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// lists writes the revocation lists of CAs into one file.
type lists struct {
	file string
	next int64 // number of the next list
}

// newLists has its file and a CA, as the file provider reads it, in folders of their own.
func newLists(t *testing.T) (l *lists, root *authority, dir string) {
	t.Helper()
	dir = proctest.Folder(t)
	return &lists{file: filepath.Join(proctest.Folder(t), "crl.pem"), next: 1}, newAuthorityIn(t, dir, "first root"), dir
}

// list returns a list of the CA, in PEM.
func (l *lists) list(t *testing.T, by *authority, life time.Duration, revoked ...*tls.Certificate) []byte {
	t.Helper()
	now := time.Now()
	template := &x509.RevocationList{Number: big.NewInt(l.next), ThisUpdate: now.Add(-time.Minute), NextUpdate: now.Add(life)}
	for _, cert := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: cert.Leaf.SerialNumber, RevocationTime: now})
	}
	l.next++
	der, err := x509.CreateRevocationList(rand.Reader, template, by.Cert, by.Key)
	mustDo(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

func (l *lists) write(t *testing.T, parts ...[]byte) {
	t.Helper()
	writeWhole(t, l.file, slices.Concat(parts...))
}

// peer is a client with a certificate that nobody renews, so that its serial stays.
func (a *authority) peer(t *testing.T, above ...*authority) *tls.Certificate {
	t.Helper()
	chain, key := a.leaf(t, &x509.Certificate{
		URIs: []*url.URL{{Scheme: "spiffe", Host: trustDomain, Path: "/peer"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	for _, ca := range above {
		chain = append(chain, ca.PEM()...)
	}
	pair, err := tls.X509KeyPair(chain, key)
	mustDo(t, err)
	return &pair
}

// below returns a CA that the authority signed.
func (a *authority) below(t *testing.T, name string) *authority {
	t.Helper()
	below := a.Issue(t, &x509.Certificate{
		SerialNumber: big.NewInt(42), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	})
	return &authority{below}
}

// admits reports whether the server lets a client with that certificate ask for a page.
func admits(t *testing.T, server string, client *tls.Certificate) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	_, err := askForPage(ctx, &tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{*client}, // the server is not what is tested
	}}, server)
	return err == nil
}

func awaitAdmitted(t *testing.T, what, server string, client *tls.Certificate, want bool) {
	t.Helper()
	poll(t, what, func() bool { return admits(t, server, client) == want })
}

func mustAdmit(t *testing.T, what, server string, client *tls.Certificate) {
	t.Helper()
	if !admits(t, server, client) {
		t.Errorf("%s is refused", what)
	}
}

func mustRefuse(t *testing.T, what, server string, client *tls.Certificate) {
	t.Helper()
	if admits(t, server, client) {
		t.Errorf("%s is admitted", what)
	}
}

func TestEnvoyRefusesRevokedClientAfterPush(t *testing.T) {
	byEachAPI(t, refusesRevokedClient)
}

func refusesRevokedClient(t *testing.T, api apiType) {
	l, root, dir := newLists(t)
	good, bad := root.peer(t), root.peer(t)
	a := startAgent(t, agentConfig{first: dir, crl: []map[string]any{{"files": []string{l.file}}}})
	a.log.await(t, "revocation lists are invalid") // there is none: the bundle waits for it
	l.write(t, l.list(t, root, time.Hour))
	server := startEnvoy(t, a.socket, api, "default").address(t)
	awaitAdmitted(t, "Envoy to admit a client", server, good, true)
	mustAdmit(t, "a client that is not revoked yet", server, bad)
	l.write(t, l.list(t, root, time.Hour, bad))
	awaitAdmitted(t, "Envoy to refuse the revoked client", server, bad, false)
	mustAdmit(t, "a client beside the revoked one", server, good)
	writeWhole(t, l.file, []byte("no list"))
	a.log.await(t, "revocation lists are invalid", "neither PEM nor")
	mustRefuse(t, "the revoked client, while the file is not good", server, bad)
	if n := a.metric(t, "countersign_crl_missing", `secret="ROOTCA"`); n != 0 {
		t.Errorf("%v CAs lack a list", n)
	}
	if left := a.metric(t, "countersign_crl_next_update_timestamp_seconds", `secret="ROOTCA"`) - float64(time.Now().Unix()); left < 60 || left > 3600 {
		t.Errorf("the metric says that the list ends in %v s", left)
	}
}

// The agent replaces its own certificate when a list has it, long before its end, and once.
func TestRevokedCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	l, root, dir := newLists(t)
	out := filepath.Join(proctest.Folder(t), "out")
	l.write(t, l.list(t, root, time.Hour))
	a := prepareAgent(t, agentConfig{first: dir, crl: []map[string]any{{"files": []string{l.file}}}, outputs: []map[string]any{{"name": "web", "folder": out}}})
	a.edit(t, func(config map[string]any) { config["ttl"] = "1h" })
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	var held *tls.Certificate
	another := func() bool {
		pair, err := tls.LoadX509KeyPair(filepath.Join(out, "cert-chain.pem"), filepath.Join(out, "key.pem"))
		if err != nil || held != nil && held.Leaf.Equal(pair.Leaf) {
			return false
		}
		held = &pair
		return true
	}
	poll(t, "the first certificate", another)
	revoked := *held
	l.write(t, l.list(t, root, time.Hour, &revoked))
	poll(t, "another certificate", another)
	a.log.await(t, "a held certificate is revoked", revoked.Leaf.SerialNumber.Text(16))
	if n := a.metric(t, "countersign_secret_rotations_total", `secret="default"`); n != 2 {
		t.Errorf("%v certificates were served", n)
	}
}

// The first pitfall: Envoy wants a list of each CA on the way, unless it checks leaves only.
func TestEnvoyRefusesPeersOfCAWithoutList(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	l, root, dir := newLists(t)
	between := root.below(t, "between")
	good := between.peer(t, between)
	l.write(t, l.list(t, between, time.Hour), between.PEM())
	all := startAgent(t, agentConfig{first: dir, crl: []map[string]any{{"files": []string{l.file}}}})
	server := startEnvoy(t, all.socket, stateOfTheWorld, "default").address(t)
	mustRefuse(t, "a client whose root has no list", server, good)
	all.log.await(t, "a CA has no current revocation list, and its peers are refused", "first root", "has none")
	if n := all.metric(t, "countersign_crl_missing", `secret="ROOTCA"`); n != 1 {
		t.Errorf("%v CAs lack a list, want the root", n)
	}
	leaves := startAgent(t, agentConfig{first: dir, crl: []map[string]any{{"files": []string{l.file}, "leaf_only": true}}})
	lenient := startEnvoy(t, leaves.socket, stateOfTheWorld, "default").address(t)
	awaitAdmitted(t, "Envoy to check leaves only", lenient, good, true)
	bad := between.peer(t, between)
	mustAdmit(t, "a client that is not revoked yet", lenient, bad)
	l.write(t, l.list(t, between, time.Hour, bad), between.PEM(), l.list(t, root, time.Hour))
	awaitAdmitted(t, "Envoy to admit the client once the root has a list", server, good, true)
	mustRefuse(t, "the revoked client", server, bad)
	awaitAdmitted(t, "Envoy to refuse the revoked client", lenient, bad, false)
}

// The second pitfall: an expired list has Envoy refuse everybody, or nobody is checked.
func TestExpiredListRefusesAllOrIsDropped(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	l, root, dir := newLists(t)
	good, bad := root.peer(t), root.peer(t)
	l.write(t, l.list(t, root, time.Hour, bad))
	kept := startAgent(t, agentConfig{first: dir, crl: []map[string]any{{"files": []string{l.file}}}})
	dropped := startAgent(t, agentConfig{first: dir, crl: []map[string]any{{"files": []string{l.file}, "stale": "drop"}}})
	strict := startEnvoy(t, kept.socket, stateOfTheWorld, "default").address(t)
	lenient := startEnvoy(t, dropped.socket, stateOfTheWorld, "default").address(t)
	for _, server := range []string{strict, lenient} {
		awaitAdmitted(t, "Envoy to admit a client", server, good, true)
		mustRefuse(t, "the revoked client", server, bad)
	}
	l.write(t, l.list(t, root, 10*time.Second, bad))
	awaitAdmitted(t, "Envoy to refuse everybody", strict, good, false)
	awaitAdmitted(t, "Envoy to check nobody", lenient, bad, true)
	kept.log.await(t, "a CA has no current revocation list, and its peers are refused")
	dropped.log.await(t, "no certificate is checked for revocation")
	if page := getPage(t, kept.status, "/status"); !bytes.Contains([]byte(page), []byte("has one that ended at")) {
		t.Error("/status does not say that the list has ended")
	}
	l.write(t, l.list(t, root, time.Hour, bad))
	awaitAdmitted(t, "Envoy to admit a client again", strict, good, true)
	awaitAdmitted(t, "Envoy to refuse the revoked client again", lenient, bad, false)
}

// nginx reads the lists from a file, at each reload.
func TestNginxRefusesRevokedClientAfterReload(t *testing.T) {
	t.Parallel()
	program, dir, address := programs.Foreign(t, "COUNTERSIGN_NGINX"), proctest.Folder(t), proctest.FreeAddress(t)
	mustDo(t, os.Chmod(dir, 0o755)) // its workers are another user's
	mustDo(t, os.Mkdir(filepath.Join(dir, "conf.d"), 0o755))
	e := example{name: "nginx", dir: filepath.Join(dir, "conf.d"), paths: map[string]string{
		"/var/lib/countersign/nginx": filepath.Join(dir, "certs"), "/run/nginx.pid": filepath.Join(dir, "nginx.pid"),
		"/usr/sbin/nginx": program, "listen 443": "listen " + address, "127.0.0.1:8080": startProgram(t),
		"ssl_verify_client      on;": "ssl_verify_client on; ssl_crl " + filepath.Join(dir, "certs/current/crl.pem") + ";",
	}}
	e.write(t, "nginx.conf")
	writeWhole(t, filepath.Join(dir, "nginx.conf"), []byte(nginxMain))
	l, root, ca := newLists(t)
	good, bad := root.peer(t), root.peer(t)
	l.write(t, l.list(t, root, time.Hour))
	a := startAgent(t, agentConfig{
		first: ca, crl: []map[string]any{{"files": []string{l.file}}}, workload: map[string]any{"name": "default", "dns_names": []string{"web.example.org"}},
		outputs: []map[string]any{{
			"name": "nginx", "folder": filepath.Join(dir, "certs"), "link": "current",
			"files": []map[string]any{
				{"name": "chain.pem", "content": "chain"}, {"name": "key.pem", "content": "key"}, {"name": "roots.pem", "content": "roots"}, {"name": "crl.pem", "content": "crl"},
			},
			"reload": map[string]any{"signal": "HUP", "pid_file": filepath.Join(dir, "nginx.pid"), "executable": program},
		}},
	})
	a.log.await(t, "files written")
	startProcess(t, program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	awaitAdmitted(t, "nginx to admit a client", address, good, true)
	mustAdmit(t, "a client that is not revoked yet", address, bad)
	l.write(t, l.list(t, root, time.Hour, bad))
	awaitAdmitted(t, "nginx to refuse the revoked client", address, bad, false)
	mustAdmit(t, "a client beside the revoked one", address, good)
}

// HAProxy's new worker reads the lists.
func TestHAProxyRefusesRevokedClientAfterReload(t *testing.T) {
	t.Parallel()
	program, dir, address := programs.Foreign(t, "COUNTERSIGN_HAPROXY"), proctest.Folder(t), proctest.FreeAddress(t)
	certs, pid := filepath.Join(dir, "certs"), filepath.Join(dir, "haproxy.pid")
	e := example{name: "haproxy", dir: dir, paths: map[string]string{
		"/var/lib/countersign/haproxy": certs, "/run/haproxy.pid": pid, "/usr/sbin/haproxy": program, "bind :443": "bind " + address,
		"127.0.0.1:8080": startProgram(t), "verify required": "verify required crl-file " + filepath.Join(certs, "crl.pem"),
	}}
	config := e.write(t, "haproxy.cfg", haproxyMain)
	l, root, ca := newLists(t)
	good, bad := root.peer(t), root.peer(t)
	l.write(t, l.list(t, root, time.Hour))
	a := startAgent(t, agentConfig{
		first: ca, crl: []map[string]any{{"files": []string{l.file}}}, workload: map[string]any{"name": "default", "dns_names": []string{"web.example.org"}},
		outputs: []map[string]any{{
			"name": "haproxy", "folder": certs,
			"files": []map[string]any{
				{"name": "web.pem", "content": "combined"}, {"name": "roots.pem", "content": "roots"}, {"name": "crl.pem", "content": "crl"},
			},
			"reload": map[string]any{"signal": "USR2", "pid_file": pid, "executable": program},
		}},
	})
	a.log.await(t, "files written")
	startProcess(t, program, "-W", "-db", "-p", pid, "-f", config)
	awaitAdmitted(t, "HAProxy to admit a client", address, good, true)
	mustAdmit(t, "a client that is not revoked yet", address, bad)
	l.write(t, l.list(t, root, time.Hour, bad))
	awaitAdmitted(t, "HAProxy to refuse the revoked client", address, bad, false)
	mustAdmit(t, "a client beside the revoked one", address, good)
}

// What a CA publishes comes through its provider, here made of the serials that its operator wrote.
func TestListsOfProviderAreServed(t *testing.T) {
	t.Parallel()
	_, root, ca := newLists(t)
	bad, dir := root.peer(t), proctest.Folder(t)
	writeWhole(t, filepath.Join(ca, "revoked.txt"), []byte(bad.Leaf.SerialNumber.Text(16)+" # stolen\n"))
	c := agentConfig{
		first: ca, crl: []map[string]any{{"files": []string{filepath.Join(dir, "there-is-none.crl")}}},
		outputs: []map[string]any{{"name": "lists", "folder": filepath.Join(dir, "out"), "bundle": "ROOTCA", "files": []map[string]any{{"name": "crl.pem", "content": "crl"}}}},
	}
	a := startAgent(t, c)
	a.log.await(t, "revocation lists are invalid", "there-is-none.crl")
	c.crl = []map[string]any{{"providers": []string{"moody"}}}
	a.writeConfig(t, c) // taken over without a restart
	a.log.await(t, "files written")
	text, err := os.ReadFile(filepath.Join(dir, "out", "crl.pem"))
	mustDo(t, err)
	served, _, err := pki.ParseCRLs(text)
	mustDo(t, err)
	if len(served) != 1 || !pki.SignedCRL(served[0], root.Cert) || len(served[0].RevokedCertificateEntries) != 1 ||
		served[0].RevokedCertificateEntries[0].SerialNumber.Cmp(bad.Leaf.SerialNumber) != 0 {
		t.Errorf("served is %s", text)
	}
	if n := a.metric(t, "countersign_crl_missing", `secret="ROOTCA"`); n != 0 {
		t.Errorf("%v CAs lack a list", n)
	}
}
