package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// programs are built once, where the scripts find them.
var programs string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asAgent {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(run())
	}
	dir, err := os.MkdirTemp("", "countersign")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs = dir
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "countersign-provider-file"), ".")
	build.Dir = "../../../providers/file"
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// asAgent as the first argument makes this test's binary the program.
const asAgent = "be-countersign"

func TestScripts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(programs, "countersign-provider-file"))
	if err != nil {
		t.Fatal(err)
	}
	pin := sha256.Sum256(program)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("COUNTERSIGN_PROVIDER_PATH", programs)
			env.Setenv("PIN", hex.EncodeToString(pin[:]))
			env.Setenv("TMPDIR", env.WorkDir)
			// Sockets have short paths.
			sockets, err := os.MkdirTemp("", "cs")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(sockets) })
			env.Setenv("S", sockets)
			return nil
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
			// agent ARG… starts the program in the background; it ends by SIGTERM with
			// the script, and must then exit with 0.
			"agent": func(ts *testscript.TestScript, _ bool, args []string) { startAgent(ts, self, args) },
		},
	})
}

func startAgent(ts *testscript.TestScript, self string, args []string) {
	log, err := os.Create(ts.MkAbs("agent.log"))
	ts.Check(err)
	cmd := exec.Command(self, append([]string{asAgent, "agent"}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"COUNTERSIGN_PROVIDER_PATH=" + programs, "TMPDIR=" + ts.Getenv("TMPDIR"), "HOME=" + ts.Getenv("HOME"), "PATH=" + ts.Getenv("PATH")}
	cmd.Stderr = log
	ts.Check(cmd.Start())
	ts.Defer(func() {
		defer log.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		if err := cmd.Wait(); err != nil {
			text, _ := os.ReadFile(log.Name())
			ts.Logf("the agent ended with %v:\n%s", err, text)
		}
	})
}
