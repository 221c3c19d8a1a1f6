package process

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/internal/host/selfsigned"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/internal/confine"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// LimitsMissing is the log line for limits that this system cannot apply.
const LimitsMissing = "cannot apply provider limits on this system"

// Options are the same for all processes of a host. All fields are required.
type Options struct {
	RuntimeDir  string          // where private folders are made
	Protocols   []wire.Protocol // the versions offered
	Groups      *Groups         // lists the processes' groups
	CallTimeout time.Duration   // of a call whose caller set no deadline
	Log         *slog.Logger    // also gets the provider's own records
	Stderr      io.Writer       // gets a raw copy of what the provider writes there
}

// Program is what processes are started from.
type Program struct {
	Name   string // of the entry, for the log
	Binary *verified.Binary
	Env    map[string]string // the entry's own variables
	Hold   *confine.Restraint
	// Pair makes the host's key for a process.
	Pair func() (*selfsigned.Pair, error)
}

// Start starts a process of the program and returns as soon as it runs;
// [Process.Connect] does the rest. The calling thread must outlive the process: on Linux
// the process dies with it.
func Start(opts Options, program Program, number int) (*Process, error) {
	if err := program.Binary.Unchanged(); err != nil {
		return nil, err
	}
	p := &Process{opts: opts, ended: make(chan struct{})}
	for _, protocol := range opts.Protocols {
		p.protocols = append(p.protocols, protocol.Version)
	}
	err := p.prepare(program)
	if err == nil {
		err = p.start(program)
	}
	if err != nil {
		p.release()
		return nil, errno.Explain(err)
	}
	p.log = opts.Log.With("provider", program.Name, "pid", p.pid, "generation", number)
	p.relay = newRelay(p.log, p.ended)
	go p.relay.run(io.TeeReader(&command.Pipe{File: p.pipes.stderr}, p.opts.Stderr))
	go p.await()
	if missing := p.confined.Started(p.pid); len(missing) > 0 {
		p.log.Warn(LimitsMissing, "limits", missing.String())
	}
	if p.server, err = selfsigned.New(); err != nil { // beside the provider's own start
		p.Kill(fmt.Errorf("make a key for the start: %w", err))
		return p, nil
	}
	p.pipes.handOver(StartData(p.host, p.server))
	return p, nil
}

// prepare makes what the process will inherit.
func (p *Process) prepare(program Program) (err error) {
	if p.host, err = program.Pair(); err != nil {
		return fmt.Errorf("make a key for the start: %w", err)
	}
	if p.folder, err = NewFolder(p.opts.RuntimeDir); err != nil {
		return err
	}
	if err := program.Hold.Owns(p.folder.Path); err != nil {
		return err
	}
	p.pipes, err = newPipes()
	return err
}

// StartData has a provider serve with the pair server and accept the pair host.
func StartData(host, server *selfsigned.Pair) wire.StartData {
	return wire.StartData{ServerCert: string(server.CertPEM), ServerKey: string(server.KeyPEM), ClientCert: string(host.CertPEM)}
}

// start executes the verified content.
func (p *Process) start(program Program) (err error) {
	b := program.Binary
	path, extra := b.Command()
	attr := sysProcAttr()
	if p.confined, err = program.Hold.Confine(attr); err != nil {
		return err
	}
	p.cmd = &exec.Cmd{
		Path: path, Args: []string{b.Path},
		Env:    environment(os.Environ(), program.Hold.Environment(), program.Env, p.protocolEnv(b)),
		Stdout: p.pipes.childOut, Stderr: p.pipes.childErr, ExtraFiles: append(p.pipes.inherited(), extra...),
		SysProcAttr: attr,
	}
	err = p.opts.Groups.starting(func() (int, error) {
		if err := p.cmd.Start(); err != nil {
			return 0, err
		}
		p.pid = p.cmd.Process.Pid
		return p.pid, nil
	})
	p.pipes.closeChilds()
	if err == nil {
		return nil
	}
	if better := b.Explain(err); better != nil {
		return better
	}
	return fmt.Errorf("start %s: %w", b.Path, err)
}

func (p *Process) protocolEnv(b *verified.Binary) []string {
	versions := strings.Trim(strings.ReplaceAll(fmt.Sprint(p.protocols), " ", ","), "[]")
	env := []string{
		wire.MagicCookieKey + "=" + wire.MagicCookieValue,
		wire.EnvVersions + "=" + versions,
		wire.EnvSocketDir + "=" + p.folder.Path,
		wire.EnvBinary + "=" + b.Path,
		wire.EnvClientCert + "=" + string(p.host.CertPEM),
		"PLUGIN_MIN_PORT=10000", "PLUGIN_MAX_PORT=25000", // stock plugin.Serve needs them where it has no unix sockets
	}
	return append(env, p.pipes.env()...)
}
