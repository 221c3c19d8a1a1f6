package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Output is a set of files that the agent keeps up to date, and the program that it reloads.
type Output struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
	// State is waiting (nothing was written since the agent started), current, not-written
	// or not-told.
	State string `json:"state"`
	// Written is when the files were last written, and NotAfter when what is in them expires;
	// zero: not since the agent started.
	Written  time.Time `json:"written,omitzero"`
	NotAfter time.Time `json:"not_after,omitzero"`
	// Tells is the command or signal that reloads the program; empty: none. Told is when the
	// reload last succeeded.
	Tells string    `json:"tells,omitempty"`
	Told  time.Time `json:"told,omitzero"`
	// Failure is what is wrong now, with the last line that the command wrote; bounded and
	// escaped.
	Failure *OutputFailure `json:"failure,omitempty"`

	unwritten, untold *OutputFailure
}

// OutputFailure is a write or reload that fails, until it succeeds.
type OutputFailure struct {
	Text    string    `json:"text"`
	Since   time.Time `json:"since"`
	At      time.Time `json:"at"` // of the last try
	Tries   int       `json:"tries"`
	NextTry time.Time `json:"next_try,omitzero"`
}

// The states of an output.
const (
	outputWaiting    = "waiting"
	outputCurrent    = "current"
	outputNotWritten = "not-written"
	outputNotTold    = "not-told"
)

// Outputs lists the outputs, before their first event.
func (r *Recorder) Outputs(all []Output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outputs = map[string]*Output{}
	for _, o := range all {
		r.outputs[o.Name] = &o
	}
}

// Output records an event of written files.
func (r *Recorder) Output(e output.Event) {
	now := time.Now()
	r.mu.Lock()
	if o := r.outputs[e.Output]; o != nil {
		o.note(e, now)
	}
	r.mu.Unlock()
	if kind, ok := outputFaults[e.Type]; ok {
		r.add(Error{At: now, Where: "output " + e.Output, Reason: kind.reason, Text: e.Text, Does: kind.does, Do: kind.do})
	}
}

// note updates the output. A program whose reload failed is behind until one succeeds.
func (o *Output) note(e output.Event, now time.Time) {
	switch e.Type {
	case output.Written:
		o.Written, o.NotAfter, o.unwritten = now, e.NotAfter, nil
	case output.Reloaded:
		o.Told, o.untold = now, nil
	case output.WriteFailed:
		o.unwritten = o.unwritten.again(e, now)
	case output.ReloadFailed:
		o.untold = o.untold.again(e, now)
	}
}

func (f *OutputFailure) again(e output.Event, now time.Time) *OutputFailure {
	next := OutputFailure{Since: now}
	if f != nil {
		next = *f
	}
	next.Text, next.At, next.NextTry, next.Tries = wire.CleanText(e.Text, ""), now, e.NextTry, next.Tries+1
	return &next
}

// now returns the output with its state.
func (o Output) now() Output {
	o.Failure = cmp.Or(o.unwritten, o.untold)
	switch {
	case o.unwritten != nil:
		o.State = outputNotWritten
	case o.untold != nil:
		o.State = outputNotTold
	case o.Written.IsZero():
		o.State = outputWaiting
	default:
		o.State = outputCurrent
	}
	return o
}

// currentOutputs returns the outputs by name.
func (r *Recorder) currentOutputs() []Output {
	var all []Output
	for _, o := range r.outputs {
		all = append(all, o.now())
	}
	slices.SortFunc(all, func(a, b Output) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Unwritten and Untold report what is behind: the files, or the program that reads them.
func (o Output) Unwritten() bool { return o.unwritten != nil }

// Untold reports a program that does not know of the files; see [Output.Unwritten].
func (o Output) Untold() bool { return o.untold != nil }

// badge returns the state of an output at a time.
func (o Output) badge(now time.Time) badge {
	switch {
	case !o.NotAfter.IsZero() && now.After(o.NotAfter):
		return badge{"the files have expired", bad}
	case o.State == outputNotWritten && o.Written.IsZero():
		return badge{"not written since the agent started", bad}
	case o.State == outputNotWritten:
		return badge{"the files are old: writing them fails", bad}
	case o.State == outputNotTold:
		return badge{"written; reload failed", bad}
	case o.State == outputWaiting:
		return badge{"waiting for its secrets", fair}
	}
	return badge{"up to date", good}
}

// outputs writes the table of outputs.
func (m *markup) outputs(r Report) {
	if len(r.Outputs) == 0 {
		return
	}
	m.section("outputs", "Files written", func() {
		m.put("<div class=\"cards\">")
		for _, o := range r.Outputs[:min(maxNames, len(r.Outputs))] {
			m.output(o)
		}
		m.put("\n</div>\n")
	})
}

func (m *markup) output(o Output) {
	m.put("\n<article>\n<h3>%v</h3>\n", clean(o.Name))
	m.badge(o.badge(m.now))
	m.put("<dl class=\"facts\">\n")
	m.id("Folder", clean(o.Folder))
	m.at("Last written", o.Written)
	m.at("Valid until", o.NotAfter)
	m.fact("Tells", clean(o.Tells))
	m.at("Last told", o.Told)
	if f := o.Failure; f != nil {
		m.fact("Error", clean(f.Text))
		m.at("Failing since", f.Since)
		m.put("<dt>Attempts</dt><dd>%v, the last ", f.Tries)
		m.moment(f.At)
		m.put("</dd>\n")
		m.at("Next attempt", f.NextTry)
	}
	m.put("</dl>\n</article>")
}
