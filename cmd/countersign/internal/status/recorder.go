package status

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

// maxErrors is how many errors are remembered; of each kind and place, the last.
const maxErrors = 20

// Error is an error with advice.
type Error struct {
	At     time.Time `json:"at"`     // of the last occurrence
	Count  int       `json:"count"`  // of occurrences
	Where  string    `json:"where"`  // a secret, a CA, a provider or a stream
	Reason string    `json:"reason"` // from a fixed list
	Text   string    `json:"text"`   // bounded and escaped
	// Does is what the agent does about it, Do what the operator can do.
	Does string `json:"does"`
	Do   string `json:"do"`
	// Now means that it is still unresolved.
	Now bool `json:"now"`
}

// Recorder remembers the last errors and the open streams. The zero value is ready to use;
// its methods are safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex
	errors  []Error            // newest last
	refused map[refusal]string // the last errors
	config  overview.Configuration
	restart []string // settings that wait for one
	state   State
	outputs map[string]*Output
	streams streams
}

// Secret records an event of the engine.
func (r *Recorder) Secret(e secret.Event) {
	switch {
	case e.Kind == secret.StateFailed, e.Kind == secret.StateKept:
		r.keep(e)
	case e.Kind == secret.Failed && e.Failure != nil:
		does, do := adviceOn(e)
		r.add(Error{At: e.Failure.At, Where: whereOf(e.Secret, e.Authority), Reason: e.Reason, Text: e.Failure.Text, Does: does, Do: do})
	}
}

// whereOf names the place of a failure: a secret, or the roots of an authority.
func whereOf(name, authority string) string {
	switch {
	case name != "":
		return "secret " + name
	case authority == spiresecret.AuthorityName:
		return authority
	}
	return "roots of " + authority
}

// Provider records a change of a provider's state.
func (r *Recorder) Provider(s pluginhost.Status) {
	where := "provider " + s.Name
	if kind, ok := problems[s.State]; ok {
		r.add(Error{At: s.Since, Where: where, Reason: kind.reason, Text: s.LastError, Does: kind.does, Do: kind.do})
	}
	for kind, said := range map[kind]string{turnedDown: s.LastReload, untaken: s.LastSecret} {
		if r.isNewRefusal(refusal{s.Name, kind.reason}, said) {
			r.add(Error{At: time.Now(), Where: where, Reason: kind.reason, Text: said, Does: kind.does, Do: kind.do})
		}
	}
}

// Configuration records the result of a reload: err is why it was rejected, else restart the
// settings that wait for a restart.
func (r *Recorder) Configuration(at time.Time, restart []string, err error) {
	now := overview.Configuration{At: at}
	if err != nil {
		now.Refused = wire.CleanText(err.Error(), "")
		r.add(Error{At: at, Where: configuration, Reason: mistaken.reason, Text: now.Refused, Does: mistaken.does, Do: mistaken.do})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config = now; err == nil {
		r.restart = restart
	}
}

// refusal is what a provider refused.
type refusal struct{ provider, reason string }

// isNewRefusal reports whether a refusal has not been recorded before.
func (r *Recorder) isNewRefusal(what refusal, said string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil {
		r.refused = map[refusal]string{}
	}
	before := r.refused[what]
	r.refused[what] = said
	return said != "" && said != before
}

// add records an error in place of the last of its kind, so that a repeated error does not
// push out the others.
func (r *Recorder) add(e Error) {
	e.Text = wire.CleanText(e.Text, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Count = 1
	if i := slices.IndexFunc(r.errors, func(old Error) bool { return old.Where == e.Where && old.Reason == e.Reason }); i >= 0 {
		e.Count += r.errors[i].Count
		r.errors = slices.Delete(r.errors, i, i+1)
	} else if len(r.errors) == maxErrors {
		r.errors = slices.Delete(r.errors, 0, 1)
	}
	r.errors = append(r.errors, e)
}

// OnDemandStreams counts the open streams that have names on demand, which are those of hosts that are
// not configured.
func (r *Recorder) OnDemandStreams(configured []secret.Status) OnDemandStreams {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams.onDemand(configured)
}

// Complete adds what is remembered to a report.
func (r *Recorder) Complete(to *Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to.OpenStreams, to.Events = r.streams.list(), r.streams.events
	if to.OnDemand != nil {
		to.OnDemandStreams = r.streams.onDemand(to.Secrets)
	}
	to.Errors, to.Configuration, to.Restart, to.Outputs = slices.Clone(r.errors), r.config, slices.Clone(r.restart), r.currentOutputs()
	if kept := r.state; kept.Dir != "" {
		to.State = &kept
	}
	if to.Machine.Replaced() {
		to.Restart = append(to.Restart, NewBinary)
	}
	slices.SortStableFunc(to.Errors, func(a, b Error) int { return cmp.Compare(b.At.UnixNano(), a.At.UnixNano()) })
	present, stopped := to.present(), to.stopped()
	for i, e := range to.Errors { // newest first
		to.Errors[i].Now = present[problem{where: e.Where, at: e.At.Unix()}] || present[problem{where: e.Where, text: e.Text}] ||
			present[problem{where: e.Where, reason: e.Reason}] || stopped[e.Where]
		delete(stopped, e.Where)
	}
}

// problem identifies an unresolved error: by its time or reason if the engine has it, else by its
// text.
type problem struct {
	where        string
	at           int64
	text, reason string
}

// stopped are the providers that do not run: the newest error of each is unresolved, whatever the
// provider does at the moment to start again.
func (r *Report) stopped() map[string]bool {
	all := map[string]bool{}
	for _, p := range r.Providers {
		if p.State != string(pluginhost.Ready) {
			all["provider "+p.Name] = true
		}
	}
	return all
}

func (r *Report) present() map[problem]bool {
	all := map[problem]bool{}
	for _, s := range r.Secrets {
		if s.Revocation != nil && s.Revocation.Failure != nil {
			all[problem{where: "secret " + s.Name, at: s.Revocation.Failure.At.Unix()}] = true
		}
		if s.Failure == nil {
			continue
		}
		all[problem{where: "secret " + s.Name, at: s.Failure.At.Unix()}] = true
		all[problem{where: "secret " + s.Name, reason: s.Failure.Reason}] = s.Failure.Reason != ""
		for _, authority := range s.Authorities {
			all[problem{where: whereOf("", authority), at: s.Failure.At.Unix()}] = true
		}
	}
	all[problem{where: configuration, text: r.Configuration.Refused}] = r.Configuration.Refused != ""
	if r.State != nil {
		all[problem{where: state, text: r.State.Failing}] = r.State.Failing != ""
	}
	for _, o := range r.Outputs {
		if o.Failure != nil {
			all[problem{where: "output " + o.Name, text: o.Failure.Text}] = true
		}
	}
	for _, p := range r.Providers {
		all[problem{where: "provider " + p.Name, text: wire.CleanText(p.LastError, "")}] = p.LastError != ""
		all[problem{where: "provider " + p.Name, text: wire.CleanText(p.LastReload, "")}] = p.LastReload != ""
		all[problem{where: "provider " + p.Name, text: wire.CleanText(p.LastSecret, "")}] = p.LastSecret != ""
	}
	return all
}
