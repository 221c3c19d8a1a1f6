package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

const (
	many       = 50        // certificates
	maxOutput  = 200 << 10 // bytes of standard error for many of them
	maxLine    = 8 << 10
	spareFiles = 8 // descriptors that come and go
)

// signMany has certificates signed one after the other.
func signMany(ctx context.Context, s *conformance.Session, probe *pluginhost.Probe) error {
	for range many {
		if err := s.SignOnce(ctx, probe); err != nil {
			return err
		}
	}
	return nil
}

// written returns what a process wrote on standard error that signed many.
func (r *rig) written(ctx context.Context, s *conformance.Session) (text string, size int, err error) {
	before, sizeBefore := r.seen.stderr.read()
	probe, err := r.ready(ctx)
	if err != nil {
		return "", 0, err
	}
	err = signMany(ctx, s, probe)
	probe.Close() // and its last words are read
	text, size = r.seen.stderr.read()
	return text[len(before):], size - sizeBefore, err
}

func (r *rig) writesLittle(ctx context.Context, s *conformance.Session) error {
	_, size, err := r.written(ctx, s)
	if err == nil && size > maxOutput {
		return fmt.Errorf("it wrote %d bytes", size)
	}
	return err
}

func (r *rig) linesAreShort(ctx context.Context, s *conformance.Session) error {
	text, _, err := r.written(ctx, s)
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > maxLine {
			return fmt.Errorf("one has %d bytes; it begins %.60q", len(line), line)
		}
	}
	return err
}

// proc reads what the system tells of a process.
func proc(probe *pluginhost.Probe, what string) string {
	return filepath.Join("/proc", fmt.Sprint(probe.Status().PID), what)
}

// descriptors counts the open ones of a process.
func descriptors(probe *pluginhost.Probe) (int, error) {
	open, err := os.ReadDir(proc(probe, "fd"))
	if err != nil {
		return 0, conformance.NotRun("this system does not tell a process's descriptors: %w", err)
	}
	return len(open), nil
}

// leaks does something often, and compares the descriptors before and after. A first
// time opens what stays open.
func (r *rig) leaks(ctx context.Context, first, often func(*pluginhost.Probe) error) error {
	probe, err := r.ready(ctx)
	if err != nil {
		return err
	}
	defer probe.Close()
	if err := first(probe); err != nil {
		return err
	}
	before, err := descriptors(probe)
	if err != nil {
		return err
	}
	if err := often(probe); err != nil {
		return err
	}
	after, err := descriptors(probe)
	if err == nil && after > before+spareFiles {
		return fmt.Errorf("%d before, %d after", before, after)
	}
	return err
}

func (r *rig) signingLeaksNothing(ctx context.Context, s *conformance.Session) error {
	return r.leaks(ctx, func(p *pluginhost.Probe) error { return s.SignOnce(ctx, p) }, func(p *pluginhost.Probe) error { return signMany(ctx, s, p) })
}

func (r *rig) settingsLeakNothing(ctx context.Context, _ *conformance.Session) error {
	again := func(p *pluginhost.Probe) error { return p.Configure(ctx, r.entry.Settings) }
	return r.leaks(ctx, again, func(p *pluginhost.Probe) error {
		var errs []error
		for range 20 {
			errs = append(errs, again(p))
		}
		return errors.Join(errs...)
	})
}

// noNetwork compares the process's sockets with the system's of the network.
func (r *rig) noNetwork(ctx context.Context, _ *conformance.Session) error {
	probe, err := r.probe(ctx, r.opts)
	if err != nil {
		return err
	}
	defer probe.Close()
	if _, err := probe.Metadata(ctx); err != nil {
		return err
	}
	if _, err := probe.Validate(ctx, r.entry.Settings); err != nil {
		return err
	}
	held, err := sockets(probe)
	if err != nil {
		return err
	}
	for _, kind := range []string{"tcp", "tcp6", "udp", "udp6"} {
		table, err := os.ReadFile(proc(probe, "net/"+kind))
		if err != nil {
			continue
		}
		for line := range strings.SplitSeq(string(table), "\n") {
			if fields := strings.Fields(line); len(fields) > 9 && slices.Contains(held, fields[9]) {
				return fmt.Errorf("it has a socket of %s, from %s to %s", kind, fields[1], fields[2])
			}
		}
	}
	return nil
}

// sockets are the inodes of a process's sockets.
func sockets(probe *pluginhost.Probe) ([]string, error) {
	open, err := os.ReadDir(proc(probe, "fd"))
	if err != nil {
		return nil, conformance.NotRun("this system does not tell a process's sockets: %w", err)
	}
	var inodes []string
	for _, fd := range open {
		target, _ := os.Readlink(filepath.Join(proc(probe, "fd"), fd.Name())) // closed meanwhile: none
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	return inodes, nil
}

// traces is all that a process shows of itself, after it was used in every way.
func (r *rig) traces(ctx context.Context, s *conformance.Session) (map[string]string, error) {
	probe, err := r.ready(ctx)
	if err != nil {
		return nil, err
	}
	s.Tease(ctx, probe)
	environ, errs := os.ReadFile(proc(probe, "environ"))
	cmdline, err := os.ReadFile(proc(probe, "cmdline"))
	probe.Close()
	written, _ := r.seen.stderr.read()
	logged, _ := r.seen.log.read()
	out := map[string]string{"what it writes": written, "the host's log": logged}
	if errors.Join(errs, err) == nil {
		out["its environment"], out["its command line"] = string(environ), string(cmdline)
	}
	return out, nil
}

func (r *rig) tokensStayInside(ctx context.Context, s *conformance.Session) error {
	all, err := r.traces(ctx, s)
	for where, text := range all {
		if s.Shows(text) {
			return fmt.Errorf("it is in %s", where)
		}
	}
	return err
}

func (r *rig) secretsStayInside(ctx context.Context, s *conformance.Session) error {
	all, err := r.traces(ctx, s)
	if err != nil {
		return err
	}
	secrets, err := r.secrets(ctx)
	for where, text := range all {
		if strings.Contains(text, "PRIVATE KEY-----") {
			return fmt.Errorf("a private key is in %s", where)
		}
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				return fmt.Errorf("the setting %s is in %s", name, where)
			}
		}
	}
	return err
}

// secrets are the kit's settings that the schema marks as secret.
func (r *rig) secrets(ctx context.Context) (map[string]string, error) {
	probe, err := r.probe(ctx, r.opts)
	if err != nil {
		return nil, err
	}
	defer probe.Close()
	m, err := probe.Metadata(ctx)
	if err != nil || m.SettingsSchema == "" {
		return nil, err
	}
	var schema struct {
		Properties map[string]struct {
			WriteOnly bool `json:"writeOnly"`
		} `json:"properties"`
	}
	if err := json.Unmarshal([]byte(m.SettingsSchema), &schema); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, property := range schema.Properties {
		if text, ok := r.entry.Settings[name].(string); ok && property.WriteOnly && len(text) >= 4 {
			out[name] = text
		}
	}
	return out, nil
}
