// Package doctor checks a provider step by step, from its file to a signed certificate,
// and explains how to fix the first step that fails. The provider commands call [Examine],
// which runs everything on the caller's goroutine and keeps no state.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/internal/program/output"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Patient is the provider to examine.
type Patient struct {
	Catalog *catalog.Catalog
	What    string // a name, NAME@VERSION or a path
	// Entry is the configuration's. Default: none; the settings are not checked.
	Entry *pluginhost.Entry
	// Dev accepts a provider without a pin, as the agent's --dev does.
	Dev bool
	// Sign has the CA sign a throwaway key and describes the result. Default: nothing is
	// signed.
	Sign func(ctx context.Context, client ca.Client) (string, error)
	// JWTSVIDs and WITSVIDs mean that the configuration has the provider sign them. Its keys are asked for.
	JWTSVIDs, WITSVIDs bool
	// Hide removes the credentials that Sign sent from the provider's log. Default: nothing.
	Hide func(text string) string
}

// Step is the result of one step.
type Step struct {
	Name   string        `json:"step"`
	Took   time.Duration `json:"took_ns"`
	Result string        `json:"result,omitempty"`
	Error  string        `json:"error,omitempty"`  // empty: the step succeeded
	Advice string        `json:"advice,omitempty"` // how to fix it
	// Log is what the provider wrote during a step that failed: the last lines, a panic whole.
	Log []string `json:"log,omitempty"`
}

// Error names the step that failed.
type Error struct {
	Step     string
	Settings bool // the operator fixes it in the settings
	Err      error
}

// Error implements error.
func (e *Error) Error() string { return "step " + e.Step + " failed: " + e.Err.Error() }

// Unwrap implements [errors.Unwrap].
func (e *Error) Unwrap() error { return e.Err }

var (
	// errDone ends an examination before its last step.
	errDone = errors.New("nothing more to examine")
	// errSkip leaves a step out.
	errSkip = errors.New("not to be examined")
)

// Examine runs the steps in order, and calls report after each. It stops at the first that
// fails and returns an [*Error].
func Examine(ctx context.Context, p Patient, report func(Step)) error {
	e := &examination{Patient: p}
	defer e.close()
	for _, s := range steps {
		began, mark := time.Now(), e.output.Mark()
		result, err := s.run(e, ctx)
		if errors.Is(err, errSkip) {
			continue
		}
		done := Step{Name: s.name, Took: time.Since(began), Result: result}
		if err != nil && !errors.Is(err, errDone) {
			done.Error, done.Advice = err.Error(), e.adviceFor(s, err)
			e.close() // its last words are read
			done.Log = e.output.Since(mark, e.hideLog)
			report(done)
			return &Error{s.name, s.settings && ca.ReasonFor(err) == ca.Invalid, err}
		}
		report(done)
		if err != nil {
			return nil
		}
	}
	return nil
}

// shown is the file as it was named.
func (e *examination) shown() string {
	if e.isPath() {
		return e.What
	}
	return e.target.Path
}

// examination is one run over the steps.
type examination struct {
	Patient
	target    catalog.Target
	refused   error
	probe     *pluginhost.Probe
	described catalog.Description
	settings  map[string]any // the entry's, without references
	secrets   []ca.Token     // in them
	output    output.Tail
}

// close ends the process. It may be called again.
func (e *examination) close() {
	if e.probe != nil {
		e.probe.Close()
		e.probe = nil
	}
}

func (e *examination) find(context.Context) (string, error) {
	target, err := e.Catalog.Find(e.What)
	if refused, ok := errors.AsType[*verified.RefusedError](err); ok {
		e.refused = err
		return refused.Path, nil
	}
	e.target = target
	return target.Path, err
}

func (e *examination) permissions(context.Context) (string, error) {
	if e.refused != nil {
		return "", e.refused
	}
	return "only root and this user can write it", verified.CheckFile(e.target.Path)
}

func (e *examination) architecture(context.Context) (string, error) {
	return "built for this machine", verified.CheckProgram(e.target.Path)
}

func (e *examination) pin(context.Context) (string, error) {
	opts := e.Catalog.Options
	opts.Dev, opts.Stderr = true, &e.output
	entry := e.target.Entry()
	if e.Entry != nil {
		entry.Settings = e.Entry.Settings
	}
	probe, err := pluginhost.NewProbe(opts, entry)
	if err != nil {
		return "", err
	}
	e.probe = probe
	sum := probe.Status().SHA256
	switch {
	case e.target.Pin != "":
		return "SHA-256 " + sum, nil
	case e.Dev:
		return "not pinned, which --dev allows; SHA-256 " + sum, nil
	case e.isPath():
		return "not pinned, as it was given by path; SHA-256 " + sum, nil
	}
	return "", fmt.Errorf("provider %q is not pinned, so an agent would not run it: its SHA-256 is %s; if that is correct, run \"countersign provider lock %s\"",
		e.target.Label(), sum, e.target.Label())
}
