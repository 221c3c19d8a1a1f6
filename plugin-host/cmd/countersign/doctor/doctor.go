// Package doctor walks the whole way from a provider's file to its certificate, step
// by step, and says at the first that is broken what to do: call [Walk].
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/catalog"
	"github.com/countersign-dev/countersign/plugin-host/internal/verified"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Patient is what is walked through.
type Patient struct {
	Catalog *catalog.Catalog
	What    string // a name, NAME@VERSION or a path
	// Entry is the configuration's; nil: it has none, and the settings are not looked at.
	Entry *pluginhost.Entry
	// Dev lets one run that is not pinned, as the agent's --dev does.
	Dev bool
	// Sign has the CA sign a throwaway key, and says what came of it. nil: nothing is signed.
	Sign func(ctx context.Context, client ca.Client) (string, error)
}

// Step is one that was walked.
type Step struct {
	Name   string        `json:"step"`
	Took   time.Duration `json:"took_ns"`
	Found  string        `json:"found,omitempty"`
	Broken string        `json:"broken,omitempty"` // empty: it is well
	Advice string        `json:"advice,omitempty"` // what to do
}

// Error says where the way is broken.
type Error struct {
	Step     string
	Settings bool // the operator mends it in his settings
	Err      error
}

// Error implements error.
func (e *Error) Error() string { return "broken at " + e.Step + ": " + e.Err.Error() }

// Unwrap implements [errors.Unwrap].
func (e *Error) Unwrap() error { return e.Err }

// errOver ends a walk that is over before its last step.
var errOver = errors.New("there is nothing more to see")

// stage is a step to be: what it does, and what to do where it fails.
type stage struct {
	name     string
	do       func(*walk, context.Context) (found string, err error)
	advice   string
	settings bool
}

var stages = []stage{
	{"found", (*walk).find, "install it as countersign-provider-NAME in one of these folders, or name its folder by --provider-dir", false},
	{"rights", (*walk).rights, "mend what is said, and nothing else: whoever may write the file runs as the agent", false},
	{"machine", (*walk).machine, "install the build for this machine", false},
	{"pin", (*walk).pin, "find out who changed the file; where that was meant, countersign provider lock", false},
	{"start", (*walk).start, "start the file by hand: it should say that it is a provider", false},
	{"handshake", (*walk).handshake, "nothing but the handshake line goes to standard output; see proto/provider/PROTOCOL.md", false},
	{"metadata", (*walk).metadata, "that is the provider's own fault: tell its author", false},
	{"schema", (*walk).schema, "that is the provider's own fault: tell its author", false},
	{"settings", (*walk).validate, "mend the settings; countersign provider inspect shows what it takes", true},
	{"authority", (*walk).ask, "see that the authority is reached from here, and takes what the settings name", true},
	{"configure", (*walk).configure, "see that what the settings name is there and is reached from here", true},
	{"ready", (*walk).ready, "wait for what it waits for, and try again", false},
	{"sign", (*walk).sign, "see what the authority demands of a request: its token, its names, its lifetime", false},
}

// Walk goes the way and tells each step when it is over. Its error is an [*Error].
func Walk(ctx context.Context, p Patient, tell func(Step)) error {
	w := &walk{Patient: p}
	defer w.close()
	for _, s := range stages {
		began := time.Now()
		found, err := s.do(w, ctx)
		step := Step{Name: s.name, Took: time.Since(began), Found: found}
		if err != nil && !errors.Is(err, errOver) {
			step.Broken, step.Advice = err.Error(), s.advice
			tell(step)
			return &Error{s.name, s.settings && ca.ReasonFor(err) == ca.Invalid, err}
		}
		tell(step)
		if err != nil {
			return nil
		}
	}
	return nil
}

// walk is one on its way.
type walk struct {
	Patient
	target  catalog.Target
	refused error
	probe   *pluginhost.Probe
	told    catalog.Description
}

func (w *walk) close() {
	if w.probe != nil {
		w.probe.Close()
	}
}

func (w *walk) find(context.Context) (string, error) {
	target, err := w.Catalog.Find(w.What)
	if refused, ok := errors.AsType[*pluginhost.RefusedError](err); ok {
		w.refused = err
		return refused.Path, nil
	}
	w.target = target
	return target.Path, err
}

func (w *walk) rights(context.Context) (string, error) {
	if w.refused != nil {
		return "", w.refused
	}
	return "only root and this user may write it", verified.CheckFile(w.target.Path)
}

func (w *walk) machine(context.Context) (string, error) {
	return "it is built for this one", verified.CheckProgram(w.target.Path)
}

func (w *walk) pin(context.Context) (string, error) {
	opts := w.Catalog.Options
	opts.Dev = true
	entry := w.target.Entry()
	probe, err := pluginhost.NewProbe(opts, entry)
	if err != nil {
		return "", err
	}
	w.probe = probe
	sum := probe.Status().SHA256
	switch {
	case w.target.Pin != "":
		return "SHA-256 " + sum, nil
	case w.Dev:
		return "none, which --dev allows; its SHA-256 is " + sum, nil
	case w.isPath():
		return "none, as its path was given; its SHA-256 is " + sum, nil
	}
	return "", fmt.Errorf("provider %q is not pinned, an agent would not run it: its SHA-256 is %s; where that is right, countersign provider lock %s",
		w.target.Label(), sum, w.target.Label())
}
