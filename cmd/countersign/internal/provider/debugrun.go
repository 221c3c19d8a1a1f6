package provider

import (
	"bufio"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/plugin-host/debugger"
)

// how is how to start a provider in a debugger.
type how struct {
	command     string // to put before the binary; %s is the interpreter
	advice      string // a line
	descriptors bool   // the provider needs those that a host passes
}

// in returns the same with the interpreter that the provider names.
func (h how) in(interpreter string) how {
	h.command = fmt.Sprintf(h.command, interpreter)
	return h
}

var (
	withDelve  = how{"dlv exec", "Build the provider with symbols: go build -gcflags 'all=-N -l', without -ldflags -s or -w.", false}
	withGDB    = how{"gdb --args", "Build the provider with symbols. rust-gdb and lldb -- serve as well.", true}
	withNode   = how{"%s --inspect-brk --preserve-symlinks-main", "Node.js waits for a debugger at port 9229, such as chrome://inspect.", true}
	withPython = how{"%s -Xfrozen_modules=off -m debugpy --listen 127.0.0.1:5678 --wait-for-client", "Install debugpy beside the provider's packages; it waits for a debugger at port 5678.", true}
)

// debuggerFor finds out what a provider is written in.
func debuggerFor(path string) how {
	interpreter := interpreterOf(path)
	name := interpreter[strings.LastIndexByte(interpreter, '/')+1:]
	switch {
	case strings.HasPrefix(name, "python"):
		return withPython.in(interpreter)
	case strings.HasPrefix(name, "node"):
		return withNode.in(interpreter)
	}
	if _, err := buildinfo.ReadFile(path); err != nil {
		return withGDB
	}
	return withDelve
}

// interpreterOf returns the interpreter that a script names in its first line, or nothing.
func interpreterOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	line, _ := bufio.NewReader(io.LimitReader(file, 256)).ReadString('\n')
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return ""
	}
	if strings.HasSuffix(words[0], "/env") {
		words = append(words[1:], "")
		if words[0] == "-S" {
			words = words[1:]
		}
	}
	return words[0]
}

// runScript returns a shell script that runs its arguments with the variables that a provider
// expects and, if it needs them, the descriptors.
func runScript(d *debugger.Debugger, descriptors bool) (string, error) {
	var out strings.Builder
	out.WriteString("#!/bin/sh\n")
	for _, v := range d.Environment() {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&out, "export %s=%s\n", name, quoted(value))
	}
	if !descriptors {
		out.WriteString("exec \"$@\"\n")
		return out.String(), nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&out, "exec %s provider debug-run %s -- \"$@\"\n", quoted(self), quoted(d.Folder()))
	return out.String(), nil
}

func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// debugRunCommand is what the script of "provider debug" runs.
func debugRunCommand() *cobra.Command {
	return &cobra.Command{
		Use: "debug-run FOLDER -- COMMAND...", Short: "Start a provider for provider debug", Hidden: true,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Wrong(debugger.Exec(cmd.Context(), args[0], args[1:]))
		},
	}
}
