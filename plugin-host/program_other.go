//go:build !linux

package pluginhost

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// replaceProcess executes the path: what was verified cannot be held here.
func (b *binary) replaceProcess(args, env []string, log *slog.Logger) error {
	log.Warn("protection unavailable on this system", "missing", "the file could be exchanged between its check and its start", "path", b.path)
	if runtime.GOOS == "windows" { // which replaces no process
		return b.child(args, env)
	}
	if err := syscall.Exec(b.path, args, env); err != nil {
		return fmt.Errorf("run %s: %w", b.path, err)
	}
	return nil
}

// child waits for the program's end. An interrupt reaches it by itself, as it has the
// same console.
func (b *binary) child(args, env []string) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	cmd := &exec.Cmd{Path: b.path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return cmd.Run()
}
