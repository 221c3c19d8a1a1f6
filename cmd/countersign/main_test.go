package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/internal/test/pages"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == catalog.Discovery.Name {
		beProgram()
	}
	if len(os.Args) > 1 && os.Args[1] == asAgent {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		main()
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = programs.Remove()
		os.Exit(code)
	}))
}

// asAgent as the first argument makes this test's binary the program.
const asAgent = "be-countersign"

func TestScripts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	providers := programs.Folder(t, "countersign-provider-citadel", "countersign-provider-file", "countersign-provider-minimal")
	vault := programs.Folder(t, "countersign-provider-vault")
	program, err := os.ReadFile(filepath.Join(providers, "countersign-provider-file"))
	if err != nil {
		t.Fatal(err)
	}
	pin := sha256.Sum256(program)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("COUNTERSIGN_PROVIDER_PATH", providers)
			env.Setenv("VAULT", vault)
			env.Setenv("SELF", self)
			env.Setenv("PIN", hex.EncodeToString(pin[:]))
			env.Setenv("TMPDIR", env.WorkDir)
			// Sockets have short paths.
			sockets, err := os.MkdirTemp("", "cs")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(sockets) })
			env.Setenv("S", sockets)
			env.Values[agentKey{}] = &background{}
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"countersign": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec(self, append([]string{asAgent}, args...)...)
				if (err != nil) != neg {
					ts.Fatalf("countersign %v: %v", args, err)
				}
			},
			// exits CODE ARG… runs the program and demands its exit code.
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(self, append([]string{asAgent}, args[1:]...)...)
				code := 0
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					code = exit.ExitCode()
				}
				if fmt.Sprint(code) != args[0] {
					ts.Fatalf("countersign %v: exit code %d, want %s", args[1:], code, args[0])
				}
			},
			// install PROGRAM FILE makes a provider of that name, which is in no folder of providers if it is odd.
			"install": func(ts *testscript.TestScript, _ bool, args []string) {
				program := filepath.Join(providers, "countersign-provider-"+args[0])
				if args[0] == "odd" {
					program = oddProvider(t)
				}
				ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[1])), 0o755))
				ts.Check(os.Link(program, ts.MkAbs(args[1])))
			},
			// append FILE TEXT adds to a file.
			"append": func(ts *testscript.TestScript, _ bool, args []string) {
				text := ts.ReadFile(args[0]) + args[1]
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
			// agent ARG… starts the program in the background; it ends with the script.
			"agent": func(ts *testscript.TestScript, _ bool, args []string) { agentOf(ts).start(ts, self, args) },
			// hangup sends the agent SIGHUP.
			"hangup": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(agentOf(ts).cmd.Process.Signal(syscall.SIGHUP))
			},
			// crash kills the agent's providers.
			"crash": func(ts *testscript.TestScript, _ bool, _ []string) { agentOf(ts).killChildren(ts) },
			// usr1 sends the agent SIGUSR1.
			"usr1": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(agentOf(ts).cmd.Process.Signal(syscall.SIGUSR1))
			},
			// drained ends the agent by SIGTERM, and demands that it exits with 0.
			"drained": func(ts *testscript.TestScript, _ bool, _ []string) { agentOf(ts).drain(ts) },
			// drained-twice is drained with signals in one moment, as "timeout" of GNU sends them.
			"drained-twice": func(ts *testscript.TestScript, _ bool, _ []string) {
				// The first few may come before the program waits for a second one. It counts the moment by the
				// clock, so as many as a busy machine sends in it.
				for end := time.Now().Add(40 * time.Millisecond); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
					_ = agentOf(ts).cmd.Process.Signal(syscall.SIGTERM)
				}
				ts.Check(agentOf(ts).cmd.Wait())
			},
			// insist sends SIGTERM until the agent has ended, and demands that this was at once.
			"insist": func(ts *testscript.TestScript, _ bool, _ []string) { agentOf(ts).insist(ts) },
			// page SOCKET PATH puts what the agent's page shows there into page.txt.
			"page": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.WriteFile(ts.MkAbs("page.txt"), fetch(ts, args[0], args[1]), 0o600))
			},
			// shows SOCKET PATH PATTERN waits until a page has the pattern, and leaves it in page.txt.
			"shows": func(ts *testscript.TestScript, _ bool, args []string) {
				agentOf(ts).awaitPage(ts, args[0], args[1], args[2])
			},
			"authority": makeAuthority,
			"listen":    listen,
			"tlsserver": serveTLS,
			"publish":   func(ts *testscript.TestScript, _ bool, args []string) { publish(ts, oddProvider(t), args) },
			"foreign":   standIn,
			// end ends what foreign started.
			"end": func(ts *testscript.TestScript, _ bool, _ []string) { agentOf(ts).endStandIns() },
			// logged PATTERN waits until the agent has logged it.
			"logged": func(ts *testscript.TestScript, _ bool, args []string) { agentOf(ts).await(ts, args[0]) },
		},
	})
}

// oddProvider returns the path of the provider odd, in a folder of its own.
func oddProvider(t *testing.T) string {
	t.Helper()
	const name = "countersign-provider-odd"
	return filepath.Join(programs.Folder(t, name), name)
}

func fetch(ts *testscript.TestScript, socket, path string) []byte {
	code, text := pages.Get(pages.Client("unix:"+socket), path)
	if code == 0 {
		ts.Fatalf("%s", text)
	}
	return []byte(text)
}

// agentKey is where a script's environment has its agent.
type agentKey struct{}

func agentOf(ts *testscript.TestScript) *background { return ts.Value(agentKey{}).(*background) }

// background is a script's agent. Its log is a file that signals when it has grown.
type background struct {
	cmd   *exec.Cmd
	log   *os.File
	grown chan struct{}

	standIns []func() // what ends them; see standIn
}

func (b *background) endStandIns() {
	for _, end := range b.standIns {
		end()
	}
	b.standIns = nil
}

func (b *background) Write(text []byte) (int, error) {
	defer func() {
		select {
		case b.grown <- struct{}{}:
		default:
		}
	}()
	return b.log.Write(text)
}

// await waits until the agent has logged the pattern.
func (b *background) await(ts *testscript.TestScript, pattern string) {
	wanted := regexp.MustCompile(pattern)
	deadline := time.After(2 * time.Minute)
	for !wanted.MatchString(ts.ReadFile("agent.log")) {
		select {
		case <-b.grown:
		case <-deadline:
			ts.Fatalf("the agent did not log %q:\n%s", pattern, ts.ReadFile("agent.log"))
		}
	}
}

// awaitPage fetches a page until it has the pattern. A state may follow its line in the log, and
// nothing else is logged then.
func (b *background) awaitPage(ts *testscript.TestScript, socket, path, pattern string) {
	wanted := regexp.MustCompile(pattern)
	deadline := time.After(2 * time.Minute)
	for page := fetch(ts, socket, path); !wanted.Match(page); page = fetch(ts, socket, path) {
		select {
		case <-b.grown:
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			ts.Fatalf("%s does not show %q:\n%s", path, pattern, page)
		}
	}
}

func (b *background) start(ts *testscript.TestScript, self string, args []string) {
	var err error
	b.log, err = os.Create(ts.MkAbs("agent.log"))
	ts.Check(err)
	b.grown = make(chan struct{}, 1)
	b.cmd = exec.Command(self, append([]string{asAgent, "agent"}, args...)...)
	b.cmd.Dir = ts.MkAbs(".")
	b.cmd.Env = []string{"COUNTERSIGN_PROVIDER_PATH=" + ts.Getenv("COUNTERSIGN_PROVIDER_PATH"), "TMPDIR=" + ts.Getenv("TMPDIR"), "HOME=" + ts.Getenv("HOME"), "PATH=" + ts.Getenv("PATH")}
	b.cmd.Stderr = b
	ts.Check(b.cmd.Start())
	ts.Defer(func() { b.stop(ts) })
}

// stop ends what drain has not.
func (b *background) stop(ts *testscript.TestScript) {
	defer b.log.Close()
	if b.cmd.ProcessState == nil {
		if err := b.end(); err != nil {
			text, _ := os.ReadFile(b.log.Name())
			ts.Logf("the agent ended with %v:\n%s", err, text)
		}
	}
}

func (b *background) insist(ts *testscript.TestScript) {
	ended, again := make(chan struct{}), time.NewTicker(100*time.Millisecond)
	defer again.Stop()
	go func() { defer close(ended); _ = b.cmd.Wait() }()
	for deadline := time.After(2 * time.Minute); ; {
		select {
		case <-again.C:
			_ = b.cmd.Process.Signal(syscall.SIGTERM)
			continue
		case <-ended:
		case <-deadline:
			ts.Fatalf("the agent did not end")
		}
		if code := b.cmd.ProcessState.ExitCode(); code != 130 {
			ts.Fatalf("the exit code is %d", code)
		}
		return
	}
}

func (b *background) killChildren(ts *testscript.TestScript) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", b.cmd.Process.Pid))
	ts.Check(err)
	killed := 0
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for child := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(child)
			ts.Check(err)
			ts.Check(syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	if killed == 0 {
		ts.Fatalf("the agent has no providers")
	}
}

func (b *background) drain(ts *testscript.TestScript) { ts.Check(b.end()) }

func (b *background) end() error {
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(2*time.Minute, func() { _ = b.cmd.Process.Kill() })
	defer timer.Stop()
	return b.cmd.Wait()
}
