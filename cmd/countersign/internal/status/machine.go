package status

import (
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// NewBinary is what a restart is pending for when the binary was replaced.
const NewBinary = "the agent's binary"

// State is what survives a restart; nil in a report where nothing is kept.
type State struct {
	Dir string `json:"dir"`
	// Failing is why the newest state cannot be kept, since when; empty: it is kept.
	Failing string    `json:"failing,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// KeepsState records where the agent keeps its state.
func (r *Recorder) KeepsState(dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Dir = dir
}

// NoStateKey is the reason of a [secret.StateFailed] when there was no key at the start, so that no
// state is kept until the next one.
const NoStateKey = "key"

func (r *Recorder) keep(e secret.Event) {
	if e.Kind == secret.StateKept {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.state.Failing, r.state.Since = "", time.Time{}
		return
	}
	f := e.Failure
	if f == nil {
		f = &secret.Failure{Text: "no details", At: time.Now()}
	}
	r.add(Error{At: f.At, Where: state, Reason: e.Reason, Text: f.Text, Does: stateDoes[e.Reason], Do: stateDo[e.Reason]})
	if e.Reason != "store" && e.Reason != NoStateKey {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Failing = clean(f.Text); r.state.Since.IsZero() {
		r.state.Since = f.At
	}
}

// machine writes which agent this is, and what it waits for.
func (m *markup) machine(r Report) {
	m.section("agent", "This agent", func() {
		m.put("<dl class=\"facts\">\n")
		m.fact("Machine", clean(r.Machine.Host))
		m.fact("Version", clean(r.Build.Version))
		if r.Machine.PID != 0 {
			m.fact("Process", strconv.Itoa(r.Machine.PID))
		}
		m.at("Started", r.Machine.Started)
		m.id("Configuration", clean(r.Machine.Config))
		m.at("Last reload", r.Configuration.At)
		m.fact("Refused", clean(r.Configuration.Refused))
		m.id("Socket", clean(r.Machine.Socket))
		m.id("Gateway's socket", clean(r.Machine.Gateway))
		if len(r.Restart) > 0 {
			m.put("<dt>Restart pending</dt><dd><span class=\"mark fair\">for</span> %v</dd>\n", cleanAll(r.Restart))
		}
		m.kept(r.State)
		m.put("</dl>\n")
	})
}

func (m *markup) kept(s *State) {
	if s == nil {
		return
	}
	m.id("Keeps its state in", clean(s.Dir))
	if s.Failing != "" {
		m.put("<dt>State</dt><dd><span class=\"mark bad\">not kept</span> since ")
		m.moment(s.Since)
		m.put(": %v</dd>\n", clean(s.Failing))
	}
}

// problems describes in sentences what beside the secrets is wrong, worst first.
func (r Report) problems() (all []fault) {
	say := func(grade, words, part string) { all = append(all, fault{badge{words, grade}, "", "#" + part}) }
	var old []string
	for _, o := range r.Outputs {
		if o.badge(r.At).Grade == bad {
			old = append(old, o.Name)
		}
	}
	if len(old) > 0 {
		say(bad, "Files are behind: "+cleanAll(old)+".", "outputs")
	}
	if r.State != nil && r.State.Failing != "" {
		say(fair, "The state cannot be kept.", "agent")
	}
	if j := r.JWTSVIDs; j != nil && j.trouble("JWT-SVID") != "" {
		say(j.badge().Grade, j.trouble("JWT-SVID"), "jwt-svids")
	}
	if w := r.WITSVIDs; w != nil && w.trouble("WIT-SVID") != "" {
		say(w.badge().Grade, w.trouble("WIT-SVID"), "wit-svids")
	}
	if trouble := r.onDemandTrouble(); trouble.Words != "" {
		say(trouble.Grade, trouble.Words, "on-demand")
	}
	if trouble := r.OnDemandStreams.Trouble(); trouble != "" {
		say(fair, trouble, "on-demand")
	}
	if r.Configuration.Refused != "" {
		say(fair, "The changed configuration was refused.", "agent")
	}
	if len(r.Restart) > 0 {
		say(fair, "A restart is pending.", "agent")
	}
	return all
}

// Warnings are the problems as one line each, for a probe's answer.
func (r Report) Warnings() []string {
	var all []string
	for _, t := range r.problems() {
		all = append(all, strings.TrimSuffix(t.Words, "."))
	}
	return all
}
