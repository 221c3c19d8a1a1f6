package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// foreign is a program that serves the workload's identity at the agent's socket,
// with an agent beside it that has nothing but that path in common with it.
type foreign struct {
	*process
	socket, folder string // the folder has the files that it serves
	files          string // where the agent serves
	issuer         *agent // signs what is in the folder, and knows nothing of the rest
}

// startForeign has one, as that user, serve what an agent writes into a folder.
func startForeign(t *testing.T, user *syscall.Credential) *foreign {
	t.Helper()
	f := &foreign{folder: proctest.Folder(t)}
	f.issuer = startAgent(t, agentConfig{outputs: []map[string]any{{
		"name": "flat", "folder": f.folder, "owner": owner(user),
	}}})
	dir := proctest.Folder(t)
	mustDo(t, os.Chmod(dir, 0o755))
	mustDo(t, os.Chmod(f.folder, 0o755))
	giveTo(t, user, dir)
	f.socket, f.files = filepath.Join(dir, "socket"), filepath.Join(proctest.Folder(t), "files")
	pair := []string{filepath.Join(f.folder, "cert-chain.pem"), filepath.Join(f.folder, "key.pem"), filepath.Join(f.folder, "root-cert.pem")}
	poll(t, "the files", func() bool { _, err := os.Stat(pair[1]); return err == nil })
	f.process = startProcessAs(t, user, filepath.Join(binaries(t), "foreignsds"), append([]string{f.socket}, pair...)...)
	poll(t, "the foreign socket", func() bool {
		conn, err := net.Dial("unix", f.socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return f
}

func owner(user *syscall.Credential) string {
	if user == nil {
		return ""
	}
	return "65534"
}

// beside starts an agent whose socket the foreign one has.
func (f *foreign) beside(t *testing.T, args ...string) *process {
	t.Helper()
	return startProcess(t, filepath.Join(binaries(t), "countersign"), append([]string{"agent",
		"--socket", f.socket, "--set", "socket.files_path=" + f.files, "--set", "files.folders=" + f.folder}, args...)...)
}

func TestEnvoyUsesForeignSocketAndAgentFiles(t *testing.T) {
	needEnvoy(t)
	t.Parallel()
	f := startForeign(t, nil)
	b := f.beside(t)
	b.log.await(t, "secrets are served", f.files)
	e := startEnvoy(t, f.socket, stateOfTheWorld, "default")
	p := startProber(t, startWorkload(t, f.issuer.socket, "client"), e.address(t), envoyID)
	p.awaitHandshakes(t, 3)
	name := "file-cert:" + filepath.Join(f.folder, "cert-chain.pem") + "~" + filepath.Join(f.folder, "key.pem")
	f.serves(t, name)
	b.stop(t, syscall.SIGTERM)
	if _, err := os.Lstat(f.socket); err != nil {
		t.Errorf("the agent took the foreign socket along: %v", err)
	}
	p.awaitHandshakes(t, 3)
	p.noFailures(t)
}

// serves demands a secret of the agent.
func (f *foreign) serves(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := dialSDS(t, f.files).FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{name}})
	if err != nil || len(answer.GetResources()) != 1 {
		t.Errorf("%s: %d resources, %v", name, len(answer.GetResources()), err)
	}
}

func TestForeignSocketOfOtherUserNeedsPermission(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("being two users needs root")
	}
	f := startForeign(t, ordinary())
	b := f.beside(t)
	<-b.Done()
	if said := b.log.String(); b.cmd.ProcessState.ExitCode() != 2 || !strings.Contains(said, "another program (uid 65534) is listening there; add 65534 to socket.foreign_uids") {
		t.Errorf("exit code %d: %s", b.cmd.ProcessState.ExitCode(), said)
	}
	allowed := f.beside(t, "--set", "socket.foreign_uids=65534")
	allowed.log.await(t, "leaving the SDS socket to another program")
	allowed.log.await(t, "secrets are served", f.files)
}
