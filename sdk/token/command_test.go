//go:build unix

package token_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

// script is a command of these lines of shell.
func script(t *testing.T, lines string) token.Command {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	return token.Command{Args: []string{shell, "-c", lines}, Env: []string{"PATH=" + os.Getenv("PATH")}}
}

func TestCommandPrintsExecCredential(t *testing.T) {
	end := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	command := script(t, `case $KUBERNETES_EXEC_INFO in *'"interactive":false'*) ;; *) exit 3;; esac
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"opaque","expirationTimestamp":"2030-01-02T03:04:05Z"}}'`)
	if got, err := command.Token(t.Context()); got.Token != "opaque" || !got.Expiry.Equal(end) || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCommandPrintsToken(t *testing.T) {
	command := script(t, `test -z "$SECRET" && echo `+jwtUntil(time.Unix(1800000000, 0)).Reveal())
	t.Setenv("SECRET", "of the agent")
	if got, err := command.Token(t.Context()); got.Token == "" || got.Expiry.Unix() != 1800000000 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFailingCommandReportsWhyWithoutToken(t *testing.T) {
	credential := func(inside string) string {
		return `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"` + inside + `}'`
	}
	for name, test := range map[string]struct{ lines, says string }{
		"exit code":         {"echo oops >&2; exit 4", "exit status 4, and says: oops"},
		"token on stderr":   {"echo token " + jwt + " >&2; exit 4", "exit status 4, and says: token (hidden)"},
		"stdout on stderr":  {"echo short-one-of-20-char; echo no short-one-of-20-char >&2; exit 4", "and says: no (secret)"},
		"control on stderr": {`printf 'a\033[2J' >&2; exit 4`, `says: a\x1b[2J`},
		"no JSON":           {"echo {" + jwt, "did not print an ExecCredential"},
		"other version":     {`echo '{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"x"}}'`, "something else"},
		"no status":         {credential(""), "without a token"},
		"two tokens":        {credential(`,"status":{"token":"` + jwt + ` ` + jwt + `"}`), "has a space"},
		"wrong time":        {credential(`,"status":{"token":"x","expirationTimestamp":"tomorrow"}`), "invalid expirationTimestamp"},
		"endless":           {"while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", "more than 131072 bytes"},
		"nothing":           {"", "is empty"},
	} {
		got, err := script(t, test.lines).Token(t.Context())
		if got.Token != "" || !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), jwt[:12]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (token.Command{Args: []string{"/no/such/program"}}).Token(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("no program: %v", err)
	}
}

func TestHangingCommandIsKilledWithItsChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	// On a busy machine a command may be killed before it has started its child.
	for timeout := time.Second; timeout < time.Minute; timeout *= 2 {
		note := filepath.Join(t.TempDir(), "child")
		command := script(t, fmt.Sprintf(`sleep 600 & echo $! > %s; wait`, note))
		command.Timeout = timeout
		if _, err := command.Token(t.Context()); !errors.Is(err, ca.ErrDeadline) {
			t.Errorf("%v", err)
		}
		line, _ := os.ReadFile(note)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(line))); err == nil {
			if !gone(t, pid) {
				t.Error("what the command started is still there")
			}
			return
		}
	}
	t.Error("the command never started its child")
}

// gone waits for the end of a process.
func gone(t *testing.T, pid int) bool {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") { // another process is to reap it
			return true
		}
	}
	return false
}

// What is required may be missing in code of an embedder.
func TestSourceWithoutWhatItNeedsFails(t *testing.T) {
	for _, none := range []token.Source{
		token.Command{}, token.Command{Args: []string{""}}, token.File{}, token.Env{}, token.Env{Name: "X"}, token.Ordered{},
		token.Exchanged{}, token.Exchanged{Source: token.Env{}},
	} {
		if got, err := none.Token(t.Context()); got.Token != "" || !errors.Is(err, ca.ErrUnavailable) || fmt.Sprint(none) == "" {
			t.Errorf("%T: %v", none, err)
		}
	}
}
