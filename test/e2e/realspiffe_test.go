//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// svidUpdate is what a workload has from its SPIFFE library, DER in hex.
type svidUpdate struct {
	ID    string   `json:"id"`
	Leaf  string   `json:"leaf"`
	Roots []string `json:"roots"`
	Code  int      `json:"code"` // of a call that failed

	// Of a JWT-SVID: its key, those of the bundle, and who takes it, which may be the library and
	// the agent.
	Key              string   `json:"key"`
	Keys             []string `json:"keys"`
	Takers           []string `json:"takers"`
	TakersOfFirst    []string `json:"takers_of_first"`    // of the first JWT-SVID that it had
	TakersForAnother []string `json:"takers_for_another"` // for another audience
}

// isOf reports whether a root is trusted, and has signed the leaf.
func (u svidUpdate) isOf(t *testing.T, root *x509.Certificate) bool {
	t.Helper()
	der, err := hex.DecodeString(u.Leaf)
	mustDo(t, err)
	leaf, err := x509.ParseCertificate(der)
	mustDo(t, err)
	return slices.Contains(u.Roots, hex.EncodeToString(root.Raw)) && leaf.CheckSignatureFrom(root) == nil
}

// spiffeWorkload is a program with the SPIFFE library of some language.
type spiffeWorkload struct {
	updates chan svidUpdate
	last    svidUpdate
}

// startSPIFFEWorkload starts a program that prints updates as lines of JSON. It is killed when the
// test ends.
func startSPIFFEWorkload(t *testing.T, command []string, socket string, args ...string) *spiffeWorkload {
	t.Helper()
	log := &logtest.Log{}
	cmd := exec.Command(command[0], slices.Concat(command[1:], []string{"unix://" + socket}, args)...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = []string{}, log, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	mustDo(t, err)
	mustDo(t, cmd.Start())
	w := &spiffeWorkload{updates: make(chan svidUpdate, 1000)}
	read := make(chan struct{})
	go func() { defer close(read); w.follow(out) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s says:\n%s", command[0], log)
		}
	})
	return w
}

func (w *spiffeWorkload) follow(out io.Reader) {
	defer close(w.updates)
	for decoder := json.NewDecoder(out); ; {
		var u svidUpdate
		if decoder.Decode(&u) != nil {
			return
		}
		w.updates <- u
	}
}

// await reads updates until done.
func (w *spiffeWorkload) await(t *testing.T, what string, done func(svidUpdate) bool) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case u, ok := <-w.updates:
			if !ok {
				t.Fatalf("the workload ended before it had %s", what)
			}
			if w.last = u; done(u) {
				return
			}
		case <-deadline:
			t.Fatalf("waited %s in vain for the workload to have %s; it has %+v", patience, what, w.last)
		}
	}
}

func (w *spiffeWorkload) awaitAnother(t *testing.T) {
	t.Helper()
	held := w.last.Leaf
	w.await(t, "another certificate", func(u svidUpdate) bool { return u.Leaf != held })
}

// withSPIFFELibraries runs a test with programs below spiffe, which have the same arguments and
// print the same lines.
func withSPIFFELibraries(t *testing.T, test func(t *testing.T, command []string), languages ...string) {
	t.Parallel()
	for _, name := range languages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := []string{programs.Foreign(t, "COUNTERSIGN_SPIFFE_"+strings.ToUpper(name))}
			if name == "python" {
				command = append(command, "-I", programs.File(t, "test/e2e/spiffe/client.py"))
			}
			test(t, command)
		})
	}
}

// On the one socket that SPIRE's agent has.
func TestRealSPIFFELibrariesFollowTheAgent(t *testing.T) {
	withSPIFFELibraries(t, followsTheAgent, "java", "python", "rust")
}

func followsTheAgent(t *testing.T, command []string) {
	a := startAgent(t, agentConfig{oneSocket: true})
	startSPIFFEWorkload(t, command, a.socket, "refused", "FetchX509SVID").
		await(t, "its call without the security header refused", func(u svidUpdate) bool { return u.Code == 3 })
	w := startSPIFFEWorkload(t, command, a.socket)
	w.await(t, "its SVID", func(u svidUpdate) bool { return u.ID == envoyID && len(u.Roots) == 1 })
	for range 5 {
		w.awaitAnother(t)
	}
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	w.awaitAnother(t)
	root := writeCA(t, a.ca, "second root")
	w.await(t, "the second root, and a certificate of it", func(u svidUpdate) bool { return u.isOf(t, root) })
}

func TestRealSPIFFEForGoFollowsTheAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{oneSocket: true})
	source := x509Source(t, a.socket)
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	root := writeCA(t, a.ca, "second root")
	poll(t, "the second root, and a certificate of it", func() bool {
		svid, err := source.GetX509SVID()
		mustDo(t, err)
		roots, err := source.GetX509BundleForTrustDomain(svid.ID.TrustDomain())
		mustDo(t, err)
		return roots.HasX509Authority(root) && svid.Certificates[0].CheckSignatureFrom(root) == nil
	})
}

// spiffeHelper is a running spiffe-helper that writes files into a folder.
type spiffeHelper struct {
	dir  string
	last []byte // the leaf
}

func (h *spiffeHelper) config() string { return filepath.Join(h.dir, "helper.conf") }

func startSPIFFEHelper(t *testing.T, socket, more string) *spiffeHelper {
	t.Helper()
	h := newSPIFFEHelper(t, socket, more)
	startProcess(t, programs.Foreign(t, "COUNTERSIGN_SPIFFE_HELPER"), "-config", h.config())
	return h
}

// newSPIFFEHelper configures it as its documentation does, with more settings, and does not start it.
func newSPIFFEHelper(t *testing.T, socket, more string) *spiffeHelper {
	t.Helper()
	h := &spiffeHelper{dir: proctest.Folder(t)}
	writeWhole(t, h.config(), fmt.Appendf(nil, `
agent_address = %q
cert_dir = %q
svid_file_name = "svid.pem"
svid_key_file_name = "svid_key.pem"
svid_bundle_file_name = "svid_bundle.pem"
%s`, socket, h.dir, more))
	return h
}

// awaitAnother waits for another certificate, with its key, and for roots that it chains to.
func (h *spiffeHelper) awaitAnother(t *testing.T) *x509.Certificate {
	t.Helper()
	var leaf *x509.Certificate
	poll(t, "another certificate of spiffe-helper", func() bool {
		leaf = h.leaf()
		return leaf != nil && !bytes.Equal(leaf.Raw, h.last)
	})
	h.last = leaf.Raw
	return leaf
}

// leaf returns the certificate, nil while the files do not fit together: they are written one by one.
func (h *spiffeHelper) leaf() *x509.Certificate {
	pair, err := tls.LoadX509KeyPair(filepath.Join(h.dir, "svid.pem"), filepath.Join(h.dir, "svid_key.pem"))
	if err != nil {
		return nil
	}
	roots := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(h.dir, "svid_bundle.pem"))
	if err != nil || !roots.AppendCertsFromPEM(text) {
		return nil
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil
	}
	return pair.Leaf
}

func TestRealSPIFFEHelperFollowsTheAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{oneSocket: true})
	h := startSPIFFEHelper(t, a.socket, "")
	if leaf := h.awaitAnother(t); len(leaf.URIs) != 1 || leaf.URIs[0].String() != envoyID {
		t.Errorf("the certificate names %v", leaf.URIs)
	}
	for range 5 {
		h.awaitAnother(t)
	}
	a.stop(t, syscall.SIGKILL)
	a.start(t)
	h.awaitAnother(t)
	root := writeCA(t, a.ca, "second root")
	for h.awaitAnother(t).CheckSignatureFrom(root) != nil {
	}
}

// A spiffe-helper whose user is not admitted goes on asking, writes nothing, and gets its certificate
// once the agent's configuration admits the user.
func TestRealSPIFFEHelperIsRefusedUntilItsUserIsAdmitted(t *testing.T) {
	t.Parallel()
	user := ordinary()
	if user == nil {
		t.Skip("only root can start spiffe-helper as another user")
	}
	a := prepareAgent(t, agentConfig{oneSocket: true})
	for _, folder := range []string{a.dir, filepath.Dir(a.socket)} {
		mustDo(t, os.Chmod(folder, 0o711)) // the socket's mode and the policy decide, not the folders
	}
	a.edit(t, func(config map[string]any) { config["socket"].(map[string]any)["mode"] = "0666" })
	a.start(t)
	h := newSPIFFEHelper(t, a.socket, "")
	program := filepath.Join(h.dir, "spiffe-helper") // the cache may be in a folder that is root's alone
	content, err := os.ReadFile(programs.Foreign(t, "COUNTERSIGN_SPIFFE_HELPER"))
	mustDo(t, err)
	mustDo(t, os.WriteFile(program, content, 0o700))
	giveTo(t, user, h.dir)
	log := startProcessAs(t, user, program, "-config", h.config()).log
	log.Await(t, patience, "a second refusal", func(text string) bool { return strings.Count(text, "PermissionDenied") >= 2 })
	if _, err := os.Stat(filepath.Join(h.dir, "svid.pem")); !os.IsNotExist(err) {
		t.Errorf("a certificate is written for a user who is not admitted: %v", err)
	}
	a.reconfigure(t, func(config map[string]any) { config["socket"].(map[string]any)["allow_uids"] = []uint32{user.Uid} })
	h.awaitAnother(t)
}
