package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const aToken = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"

// What an agent and its provider write, show and leave, after much that went wrong,
// has neither a key nor the token; and the provider never had a key.
func TestNothingVisibleHasAKeyOrToken(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{token: aToken})
	w := startWorkload(t, a.socket, "default")
	for _, mood := range []string{"blab", "babble", "panic"} {
		writeWhole(t, a.mood(), []byte(mood))
		held := w.certificate()
		if mood == "blab" { // a denial waits a minute, or for new settings
			a.log.await(t, "cannot renew certificate", "denied")
			a.killProvider(t)
		}
		w.await(t, "its next certificate", func() bool { return !w.pair.Leaf.Equal(held.Leaf) })
	}
	secrets := secretsTexts(t, w)
	search := func(where string, text []byte) {
		for name, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has %s", where, name)
			}
		}
	}
	search("the log", []byte(a.log.String()))
	for _, page := range []string{"/healthz", "/readyz", "/metrics", "/status"} {
		search(page, []byte(getPage(t, a.status, page)))
	}
	provider := a.provider(t, 0)
	for _, pid := range []int{a.PID(), provider} {
		for _, file := range []string{"environ", "cmdline", "comm"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil && os.Geteuid() == 0 { // who is not root may not even look
				t.Error(err)
			}
			search(fmt.Sprintf("/proc/%d/%s", pid, file), text)
		}
	}
	for _, dir := range []string{a.dir, a.cmd.Dir} {
		searchFiles(t, dir, search)
	}
	// The provider has the token by right, and its CA's key. This test has both keys:
	// here the search must find them.
	keys := map[string]string{"the key's number": secrets["the key's number"], "the key in base64": secrets["the key in base64"]}
	inMemory := func(pid int) (found bool) {
		searchMemory(t, pid, func(_ string, piece []byte) {
			for _, key := range keys {
				found = found || bytes.Contains(piece, []byte(key))
			}
		})
		return found
	}
	if inMemory(provider) {
		t.Error("the provider has the workload's key")
	}
	if !inMemory(os.Getpid()) {
		t.Error("the search does not find a key where there is one")
	}
}

// secretsTexts are the forms in which a secret could be seen.
func secretsTexts(t *testing.T, w *workload) map[string]string {
	t.Helper()
	key, ok := w.certificate().PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the key is a %T", w.certificate().PrivateKey)
	}
	number, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"the key's number": string(number), "the key in hex": hex.EncodeToString(number), "the key in base64": base64.StdEncoding.EncodeToString(number)[:40],
		"a PEM key": "PRIVATE KEY-----", "the token": aToken[:len(aToken)/2], "the token's signature": aToken[len(aToken)-20:],
		"the token in base64": base64.StdEncoding.EncodeToString([]byte(aToken))[:40],
	}
}

// searchFiles looks at what was written, but for what the test itself wrote: the CA
// and the token.
func searchFiles(t *testing.T, dir string, search func(string, []byte)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) == "ca" {
			return fs.SkipDir
		}
		if filepath.Base(path) == "token" || !entry.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		search(path, text)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// searchMemory looks at the writable memory of a process, a piece at a time; pieces
// overlap, so that nothing is missed between two.
func searchMemory(t *testing.T, pid int, search func(string, []byte)) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	const overlap = 4096
	piece := make([]byte, 1<<20)
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(rights, "rw") || to-from > 1<<30 { // the race detector's shadow
			continue
		}
		for at := from; at < to; at += uint64(len(piece)) - overlap {
			n, _ := memory.ReadAt(piece[:min(uint64(len(piece)), to-at)], int64(at)) // a part may be gone meanwhile
			search("the memory of "+strconv.Itoa(pid), piece[:n])
		}
	}
}
