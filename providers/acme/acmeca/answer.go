package acmeca

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// wellKnown is where http-01 looks (RFC 8555, section 8.3).
const wellKnown = ".well-known/acme-challenge"

func newAnswerer(s Settings, log *slog.Logger) answerer {
	switch {
	case s.challenge() == DNS01:
		return &record01{settings: s, log: log, turn: make(chan struct{}, 1)}
	case s.challenge() == TLSALPN01:
		return newALPN(s.listen(), log)
	case s.Webroot != "":
		return webroot(s.Webroot)
	}
	return newHTTP(s.listen(), log)
}

// webroot answers http-01 by files that a web server serves.
type webroot string

const (
	publicFile   = 0o644 // the web server is another user
	publicFolder = 0o755
)

func (w webroot) present(_ context.Context, c challenge) (func(context.Context) error, error) {
	root, err := os.OpenRoot(string(w))
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "webroot: %w", err)
	}
	defer func() { _ = root.Close() }() // only its descriptor
	if err := root.MkdirAll(wellKnown, publicFolder); err != nil {
		return nil, ca.Errorf(ca.Unavailable, "webroot: %w", err)
	}
	if err := (&folder{root}).write(path.Join(wellKnown, c.token), []byte(c.proof), publicFile); err != nil {
		return nil, ca.Errorf(ca.Unavailable, "webroot: %w", err)
	}
	return func(context.Context) error { return w.remove(c.token) }, nil
}

func (w webroot) remove(token string) error {
	root, err := os.OpenRoot(string(w))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only its descriptor
	return root.Remove(path.Join(wellKnown, token))
}

func (webroot) settle(context.Context) error { return nil }

// record01 answers dns-01 by a command. One runs at a time: tools that edit a zone seldom
// bear company.
type record01 struct {
	settings Settings
	log      *slog.Logger
	turn     chan struct{}
}

const (
	maxSaid = 4 << 10
	// lastWords is how long its output is read after its end, which a child of it may hold open.
	lastWords = 500 * time.Millisecond
)

func (r *record01) present(ctx context.Context, c challenge) (func(context.Context) error, error) {
	sum := sha256.Sum256([]byte(c.proof))
	at, value := "_acme-challenge."+c.name.Value+".", base64.RawURLEncoding.EncodeToString(sum[:])
	clean := func(ctx context.Context) error {
		if err := r.wait(ctx); err != nil {
			return err
		}
		return r.run(ctx, "cleanup", at, value)
	}
	if err := r.wait(ctx); err != nil {
		return nil, ca.Errorf(ca.Unavailable, "dns_command: %w", err)
	}
	if err := r.run(ctx, "present", at, value); err != nil { // it may have got half of the way
		return clean, ca.Errorf(ca.Unavailable, "dns_command: %w", err)
	}
	return clean, nil
}

// wait waits for the turn, which run gives back.
func (r *record01) wait(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the runs of other orders: %w", ctx.Err())
	}
}

// run runs the command, with the variables alone that a program needs: others may be secret.
// It is killed at its deadline, with all that it has started.
func (r *record01) run(ctx context.Context, words ...string) error {
	defer func() { <-r.turn }()
	limited, cancel := context.WithTimeout(ctx, r.settings.dnsTimeout())
	defer cancel()
	program := r.settings.DNSCommand
	cmd := exec.CommandContext(limited, program[0], append(slices.Clone(program[1:]), words...)...) //nolint:gosec // the operator configured it
	said := &head{}
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = plainEnv(), said, said, lastWords
	ownGroup(cmd)
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("killed, as its order or the provider ended: %w", ctx.Err())
	case limited.Err() != nil:
		err = fmt.Errorf("killed after %s: %w", r.settings.dnsTimeout(), limited.Err())
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", words[0], words[1], err, provider.CleanText(strings.TrimSpace(string(said.text))))
	}
	return nil
}

// plainEnv returns the variables that a program needs.
func plainEnv() []string {
	env := []string{}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (r *record01) settle(ctx context.Context) error { return sleep(ctx, r.settings.DNSWait) }

// head keeps the beginning of a program's output. os/exec writes to it from one goroutine, as
// both outputs are the same.
type head struct{ text []byte }

// Write takes everything.
func (h *head) Write(b []byte) (int, error) {
	h.text = append(h.text, b[:min(len(b), maxSaid-len(h.text))]...)
	return len(b), nil
}
