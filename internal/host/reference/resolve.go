package reference

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Options say what references may use.
type Options struct {
	// LookupEnv finds the variables of {env: NAME}, usually [os.LookupEnv]. Default: none is
	// set.
	LookupEnv func(name string) (value string, ok bool)
	// CommandEnv is the whole environment of commands. Default: empty.
	CommandEnv []string
	// Dir is where the relative paths of files begin. Default: the current folder.
	Dir string
	// Timeout bounds each read. Default: 10 s.
	Timeout time.Duration
}

// Resolver replaces the references in one provider's settings. It remembers the last good
// value of each for when a later read fails. It is safe for concurrent use.
type Resolver struct {
	opts     Options
	settings map[string]any

	mu    sync.Mutex
	known map[string]*source // by JSON Pointer
}

// source is a reference with its last good value.
type source struct {
	reference
	turn call.Turn // a read that hangs costs one goroutine

	// The Resolver's mutex guards these.

	value string // empty: not read yet
	fault error  // of the last read
}

// NewResolver reads nothing yet.
func NewResolver(opts Options, settings map[string]any) *Resolver {
	if opts.LookupEnv == nil {
		opts.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if opts.Timeout == 0 {
		opts.Timeout = 10 * time.Second
	}
	return &Resolver{opts: opts, settings: settings, known: map[string]*source{}}
}

// Resolved are settings without references.
type Resolved struct {
	Settings map[string]any
	Secrets  []ca.Token // their secret values, to keep out of errors
	Files    []string   // that references name
	Plain    []string   // paths of the secrets that stand in the configuration itself
	Stale    []error    // reads that failed, whose last good value is used
}

// Resolve reads every reference. An error for a malformed one and for a variable that is not set
// has the reason [ca.Invalid], for one that cannot be read and never could [ca.Unavailable]. No error shows a value.
func (r *Resolver) Resolve(ctx context.Context, paths Paths) (Resolved, error) {
	return r.resolve(ctx, paths, func(*source) bool { return true })
}

// Reread reads the files again, and keeps the values of all other references.
func (r *Resolver) Reread(ctx context.Context, paths Paths) (Resolved, error) {
	return r.resolve(ctx, paths, func(s *source) bool { return s.file != "" || s.value == "" })
}

func (r *Resolver) resolve(ctx context.Context, paths Paths, due func(*source) bool) (out Resolved, err error) {
	if err := Check(r.settings, paths); err != nil {
		return out, ca.Errorf(ca.Invalid, "settings: %w", err)
	}
	plain, err := plainJSON(r.settings, paths)
	if err != nil {
		return out, ca.Errorf(ca.Invalid, "%w", err)
	}
	r.read(ctx, r.take(plain, paths, due))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pointer := range slices.Sorted(maps.Keys(r.known)) {
		if s := r.known[pointer]; s.value == "" {
			reason := ca.Unavailable
			if errors.Is(s.fault, errUnset) {
				reason = ca.Invalid
			}
			return out, ca.Errorf(reason, "settings: %s: %w", shown(pointer), s.fault)
		}
	}
	out.Settings, _ = walk(plain, "", paths.Root(), func(pointer string, value any, isReference bool) any {
		if !isReference {
			return out.plain(pointer, value)
		}
		return out.put(pointer, r.known[pointer])
	}).(map[string]any)
	return out, nil
}

// take returns the references that are due.
func (r *Resolver) take(plain any, paths Paths, due func(*source) bool) (all []*source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	walk(plain, "", paths.Root(), func(pointer string, value any, isReference bool) any {
		if !isReference {
			return value
		}
		if r.known[pointer] == nil {
			ref, _ := parse(value) // it was checked
			r.known[pointer] = &source{reference: ref.from(r.opts.Dir), turn: call.NewTurn()}
		}
		if s := r.known[pointer]; due(s) {
			all = append(all, s)
		}
		return value
	})
	return all
}

// read reads all of them at once.
func (r *Resolver) read(ctx context.Context, sources []*source) {
	var all sync.WaitGroup
	for _, s := range sources {
		all.Go(func() {
			value, err := call.Do(ctx, r.opts.Timeout, s.turn, func(ctx context.Context) (string, error) { return s.read(ctx, r.opts) })
			r.mu.Lock()
			defer r.mu.Unlock()
			if s.fault = nil; err != nil {
				s.fault = fmt.Errorf("%s: %w", s, err)
				return
			}
			s.value = value
		})
	}
	all.Wait()
}

// plain notes a secret that stands in the configuration itself.
func (out *Resolved) plain(pointer string, value any) any {
	if word, ok := value.(string); ok && word != "" {
		out.Plain = append(out.Plain, shown(pointer))
		out.hide(word)
	}
	return value
}

// put returns the value of a reference.
func (out *Resolved) put(pointer string, s *source) any {
	if s.file != "" {
		out.Files = append(out.Files, s.file)
	}
	if s.fault != nil {
		out.Stale = append(out.Stale, fmt.Errorf("%s: %w", shown(pointer), s.fault))
	}
	out.hide(s.value)
	return s.value
}

// leastHidden is the length from which a value is replaced in errors. A shorter one is in
// many words.
const leastHidden = 4

func (out *Resolved) hide(value string) {
	if len(value) >= leastHidden {
		out.Secrets = append(out.Secrets, ca.Token(value))
	}
}
