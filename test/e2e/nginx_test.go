package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// nginxMain is as little of /etc/nginx/nginx.conf as there may be.
const nginxMain = `
daemon off;
pid nginx.pid;
error_log stderr notice;
worker_processes 2;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include conf.d/nginx.conf;
}
`

func TestNginxTakesEachCertificateUnderLoad(t *testing.T) {
	t.Parallel()
	program, dir, address := programs.Foreign(t, "COUNTERSIGN_NGINX"), proctest.Folder(t), proctest.FreeAddress(t)
	mustDo(t, os.Chmod(dir, 0o755)) // its workers are another user's
	mustDo(t, os.Mkdir(filepath.Join(dir, "conf.d"), 0o755))
	e := example{name: "nginx", dir: filepath.Join(dir, "conf.d"), paths: map[string]string{
		"/var/lib/countersign/nginx": filepath.Join(dir, "certs"), "listen 443": "listen " + address, "127.0.0.1:8080": startProgram(t),
		bySystemd("nginx"): fmt.Sprintf("reload: {signal: HUP, pid_file: %s/nginx.pid, executable: %s}", dir, program),
	}}
	e.write(t, "nginx.conf")
	writeWhole(t, filepath.Join(dir, "nginx.conf"), []byte(nginxMain))
	a := e.startAgent(t)
	startProcess(t, program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	takesEachCertificate(t, a, "nginx", address)
}

// takesEachCertificate holds a server to three rotations, and one of the root, under
// constant load: no connection and no request may fail.
func takesEachCertificate(t *testing.T, a *agent, output, address string) {
	t.Helper()
	poll(t, output+" to listen", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	w := startWorkload(t, a.socket, "client")
	p := startProber(t, w, address, "web.example.org")
	l := startLoad(t, w, address, "web.example.org")
	for n := range 4 {
		p.awaitCertificates(t, n+1)
	}
	a.rotateRoot(t, w, p)
	p.awaitHandshakes(t, 20)
	l.noFailures(t)
	p.noFailures(t)
	poll(t, "the reloads in /metrics", func() bool {
		return a.metric(t, "countersign_output_events_total", `output="`+output+`"`, `event="reloaded"`) >= 4
	})
}

// awaitCertificates waits until so many different ones have been shown: at a reload an
// old worker may show the old one once more after a new worker has shown the new one.
func (p *prober) awaitCertificates(t *testing.T, n int) {
	t.Helper()
	p.await(t, fmt.Sprintf("the server to show %d certificates", n), func() bool { return p.different() >= n })
}

// different counts the certificates that were shown. The caller has the lock.
func (p *prober) different() int {
	seen := map[string]bool{}
	for _, h := range p.handshakes {
		seen[h.server.SerialNumber.String()] = true
	}
	return len(seen)
}

// rotateRoot does as a CA must: the new root is told to all before anything is signed
// with it.
func (a *agent) rotateRoot(t *testing.T, w *workload, p *prober) {
	t.Helper()
	_, signs := a.announceRoot(t, w)
	p.mu.Lock()
	n := p.different()
	p.mu.Unlock()
	p.awaitCertificates(t, n+1) // by then whoever reads files has them, too
	signs()
	p.awaitSigner(t, "second root")
}

// announceRoot waits until the agent serves a second root beside the first one. Then signs has the CA
// sign with it.
func (a *agent) announceRoot(t *testing.T, w *workload) (second *pki.Bundle, signs func()) {
	t.Helper()
	next := proctest.Folder(t)
	second = pki.NewBundle(writeCA(t, next, "second root"))
	both := w.bundle().Union(second)
	writeWhole(t, filepath.Join(a.ca, "root-cert.pem"), both.PEM())
	w.await(t, "both roots", func() bool { return w.roots.Equal(both) })
	return second, func() {
		for _, file := range []string{"ca-cert.pem", "ca-key.pem"} {
			writeWhole(t, filepath.Join(a.ca, file), []byte(readText(t, filepath.Join(next, file))))
		}
	}
}
