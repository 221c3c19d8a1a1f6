//go:build !linux

package verified

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// replaceProcess executes the path: this system cannot hold verified content.
func (b *Binary) replaceProcess(args, env []string, log *slog.Logger) error {
	log.Warn("protection unavailable on this system", "missing", "the file can be replaced between check and start", "path", b.Path)
	if runtime.GOOS == "windows" { // cannot replace a process
		return b.child(args, env)
	}
	if err := syscall.Exec(b.Path, args, env); err != nil {
		return fmt.Errorf("run %s: %w", b.Path, err)
	}
	return nil
}

// child runs the program and waits for it. An interrupt reaches the child through the
// shared console.
func (b *Binary) child(args, env []string) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	cmd := &exec.Cmd{Path: b.Path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return cmd.Run()
}
