package providertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// usage is what a process left behind that signed many, and was used in every way.
type usage struct {
	written          string // on standard error
	size             int    // of it
	stray            int64  // bytes on standard output
	before, after    int    // descriptors
	uncounted        error  // why there are no descriptors
	environ, cmdline string // empty where the system does not show them
	schema           string // of its settings
}

// use does that once, for all checks that look at it.
func (r *rig) use(ctx context.Context, s *conformance.Session) (*usage, error) {
	if r.used == nil && r.unused == nil {
		r.used, r.unused = r.useOnce(ctx, s)
	}
	return r.used, r.unused
}

func (r *rig) useOnce(ctx context.Context, s *conformance.Session) (*usage, error) {
	textBefore, sizeBefore := r.seen.stderr.read()
	probe, err := r.ready(ctx)
	if err != nil {
		return nil, err
	}
	u, err := signMany(ctx, s, probe)
	probe.Close() // and its last words are read
	if err != nil {
		return nil, err
	}
	text, size := r.seen.stderr.read()
	u.written, u.size, u.stray = text[len(textBefore):], size-sizeBefore, probe.Stray()
	return u, nil
}

func signMany(ctx context.Context, s *conformance.Session, probe *pluginhost.Probe) (*usage, error) {
	if err := s.SignOnce(ctx, probe); err != nil { // it may open what stays open
		return nil, err
	}
	m, err := probe.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	u := &usage{schema: m.SettingsSchema}
	u.before, u.uncounted = descriptors(probe)
	for range many {
		if err := s.SignOnce(ctx, probe); err != nil {
			return nil, err
		}
	}
	u.after, _ = descriptors(probe)
	s.Tease(ctx, probe)
	environ, _ := os.ReadFile(proc(probe, "environ"))
	cmdline, _ := os.ReadFile(proc(probe, "cmdline"))
	u.environ, u.cmdline = string(environ), string(cmdline)
	return u, nil
}

func (r *rig) stdoutIsQuiet(ctx context.Context, s *conformance.Session) error {
	u, err := r.use(ctx, s)
	if err == nil && u.stray > 0 {
		return fmt.Errorf("%d bytes were", u.stray)
	}
	return err
}

func (r *rig) writesLittle(ctx context.Context, s *conformance.Session) error {
	u, err := r.use(ctx, s)
	if err == nil && u.size > maxOutput {
		return fmt.Errorf("it wrote %d bytes", u.size)
	}
	return err
}

func (r *rig) linesAreShort(ctx context.Context, s *conformance.Session) error {
	u, err := r.use(ctx, s)
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(u.written, "\n") {
		if len(line) > maxLine {
			return fmt.Errorf("one has %d bytes; it begins %.60q", len(line), line)
		}
	}
	return nil
}

// proc reads what the system shows of a process.
func proc(probe *pluginhost.Probe, what string) string {
	return filepath.Join("/proc", strconv.Itoa(probe.Status().PID), what)
}

// descriptors counts the open ones of a process.
func descriptors(probe *pluginhost.Probe) (int, error) {
	open, err := os.ReadDir(proc(probe, "fd"))
	if err != nil {
		return 0, conformance.NotRun("this system does not show a process's descriptors: %w", err)
	}
	return len(open), nil
}

// grew compares descriptors before and after.
func grew(before, after int) error {
	if after > before+spareFiles {
		return fmt.Errorf("%d before, %d after", before, after)
	}
	return nil
}

func (r *rig) signingLeaksNothing(ctx context.Context, s *conformance.Session) error {
	u, err := r.use(ctx, s)
	if err != nil {
		return err
	}
	if u.uncounted != nil {
		return u.uncounted
	}
	return grew(u.before, u.after)
}

func (r *rig) settingsLeakNothing(ctx context.Context, _ *conformance.Session) error {
	probe, err := r.ready(ctx)
	if err != nil {
		return err
	}
	defer probe.Close()
	before, err := descriptors(probe)
	if err != nil {
		return err
	}
	for range 20 {
		if err := probe.Configure(ctx, r.entry.Settings); err != nil {
			return err
		}
	}
	after, err := descriptors(probe)
	if err != nil {
		return err
	}
	return grew(before, after)
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
		return nil, conformance.NotRun("this system does not show a process's sockets: %w", err)
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

// traces is all that the provider showed of itself in the whole run.
func (r *rig) traces(ctx context.Context, s *conformance.Session) (map[string]string, error) {
	u, err := r.use(ctx, s)
	if err != nil {
		return nil, err
	}
	written, _ := r.seen.stderr.read()
	logged, _ := r.seen.log.read()
	return map[string]string{
		"what it writes": written, "the host's log": logged, "its environment": u.environ, "its command line": u.cmdline,
	}, nil
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
	secrets, err := r.secrets(r.used.schema)
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

// secrets are the kit's settings that a schema marks as secret.
func (r *rig) secrets(schema string) (map[string]string, error) {
	if schema == "" {
		return nil, nil
	}
	var marked struct {
		Properties map[string]struct {
			WriteOnly bool `json:"writeOnly"`
		} `json:"properties"`
	}
	if err := json.Unmarshal([]byte(schema), &marked); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, property := range marked.Properties {
		if text, ok := r.entry.Settings[name].(string); ok && property.WriteOnly && len(text) >= 4 {
			out[name] = text
		}
	}
	return out, nil
}
