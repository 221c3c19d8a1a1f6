package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// haproxyMain is as little of the sections before the example's as there may be.
const haproxyMain = `
global
    log stderr format raw daemon notice
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
`

func TestHAProxyTakesEachCertificateUnderLoad(t *testing.T) {
	t.Parallel()
	program, dir, address := programs.Foreign(t, "COUNTERSIGN_HAPROXY"), proctest.Folder(t), proctest.FreeAddress(t)
	pid := filepath.Join(dir, "haproxy.pid")
	e := example{name: "haproxy", dir: dir, paths: map[string]string{
		"/var/lib/countersign/haproxy": filepath.Join(dir, "certs"),
		bySystemd("haproxy"):           fmt.Sprintf("reload: {signal: USR2, pid_file: %s, executable: %s}", pid, program),
		"bind :443":                    "bind " + address, "127.0.0.1:8080": startProgram(t),
	}}
	config := e.write(t, "haproxy.cfg", haproxyMain)
	a := e.startAgent(t)
	startProcess(t, program, "-W", "-db", "-p", pid, "-f", config)
	takesEachCertificate(t, a, "haproxy", address)
}
