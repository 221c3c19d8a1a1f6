package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

// view is what is shown. It holds the last answer of each agent.
type view struct {
	filter cli.Filter // rows that do not contain it are left out
	agents []*agent
	events []event // oldest first
}

type agent struct {
	address string
	asked   bool
	known   bool // it has answered
	last    report
	seen    time.Time // of the last answer
	err     error     // why the last look failed
}

func newView(sources []*source) *view {
	v := &view{}
	for _, s := range sources {
		v.agents = append(v.agents, &agent{address: s.address})
	}
	return v
}

// take takes an answer of an agent, and notes what has changed.
func (v *view) take(i int, a answer) {
	g := v.agents[i]
	var news []event
	switch {
	case a.err != nil && (g.err == nil):
		news = []event{{text: "does not answer: " + a.err.Error()}}
	case a.err == nil && g.err != nil:
		news = []event{{text: "answers again", well: true}}
	}
	if a.err == nil {
		if g.known {
			news = append(news, changes(g.last, a.report)...)
		}
		g.last, g.seen, g.known = a.report, a.at, true
	}
	g.err, g.asked = a.err, true
	for _, e := range news {
		e.at, e.from = a.at, g.address
		v.events = append(v.events, e)
	}
	v.events = v.events[max(0, len(v.events)-maxEvents):]
}

// lines draws everything, each line at most width columns wide.
func (v *view) lines(width int, now time.Time, paint painter) []string {
	var all []string
	for _, t := range []*table{
		v.summaries(now), v.secrets(now), v.rules(now), v.names(now), v.roots(now), v.happened("EVENT", 0, newest),
		v.providers(), v.tokens("JWT-SVIDS BY", func(r *report) *tokens { return r.JWTSVIDs }),
		v.tokens("WIT-SVIDS BY", func(r *report) *tokens { return r.WITSVIDs }),
		v.outputs(now), v.authorities(), v.streams(now), v.happened("EARLIER", newest, maxEvents),
	} {
		if lines := t.lines(width, paint); len(lines) > 0 {
			all = append(append(all, lines...), "")
		}
	}
	return all
}

func (v *view) summaries(now time.Time) *table {
	t := newTable("AGENT", "MACHINE", "VERSION", "UP", "STATE").dispensable("VERSION", "UP", "MACHINE")
	t.last = 64 // a headline
	for _, g := range v.agents {
		up := "-"
		if !g.last.Machine.Started.IsZero() {
			up = span(now.Sub(g.last.Machine.Started))
		}
		state, color := g.state(now)
		t.row(plain(g.address), plain(dash(g.last.Machine.Host)), plain(dash(g.last.Build.Version)), plain(up), colored(state, color))
	}
	return t
}

func (g *agent) state(now time.Time) (words string, color cli.Color) {
	switch {
	case !g.asked:
		return "asking", cli.Plain
	case g.err != nil && g.known:
		return fmt.Sprintf("away for %s: %s", span(now.Sub(g.seen)), g.err), cli.Red
	case g.err != nil:
		return "away: " + g.err.Error(), cli.Red
	}
	return g.last.summary()
}

func grade(well bool) cli.Color {
	if well {
		return cli.Green
	}
	return cli.Red
}

// held is a secret of an agent.
type held struct {
	of *agent
	secret
}

// sorted returns all secrets, those that are not held first, then those whose renewal fails; of many,
// also those that end first.
func (v *view) sorted() (all []held) {
	v.each(func(g *agent) {
		for _, s := range g.last.Secrets {
			all = append(all, held{g, s})
		}
	})
	slices.SortStableFunc(all, func(a, b held) int {
		worst := cmp.Compare(a.rank(), b.rank())
		if len(all) <= fewSecrets {
			return worst
		}
		return cmp.Or(worst, a.Item.NotAfter.Compare(b.Item.NotAfter))
	})
	return all
}

// fewSecrets keep their places when they rotate.
const fewSecrets = 12

func (v *view) secrets(now time.Time) *table {
	t := v.newTable("SECRET", "AGENT", "STATE", "LEFT", "RENEWS", "ROTATIONS", "SERIAL", "ROOT", "FROM", "FAILURE").dispensable("ROTATIONS", "SERIAL", "FROM", "ROOT")
	for _, s := range v.sorted() {
		state, well := s.state()
		t.row(plain(s.Name), plain(s.of.address), colored(state, grade(well)), plain(until(s.Item.NotAfter, now)), plain(until(s.Item.RenewAt, now)),
			plain(strconv.Itoa(s.Rotations)), plain(dash(short(s.Item.Serial))), plain(dash(short(s.Item.Root))), plain(dash(s.Item.Authority)), plain(s.Failure.Reason))
	}
	return t
}

// rules shows the rules for names that clients ask for.
func (v *view) rules(now time.Time) *table {
	t := v.newTable("RULE", "AGENT", "STATE", "HELD", "NEW", "WAITING", "BUDGET", "EXPIRES", "REFUSED").dispensable("NEW", "BUDGET")
	v.each(func(g *agent) {
		for _, r := range g.last.OnDemand.Rules {
			state, well := r.state()
			budget, expires := "-", "-"
			if r.Budget != nil {
				budget = strconv.Itoa(*r.Budget)
			}
			if len(r.Next) > 0 {
				expires = until(r.Next[0].Ends, now)
			}
			t.row(plain(r.Name), plain(g.address), colored(state, grade(well)), plain(strconv.Itoa(r.Held)), plain(strconv.Itoa(r.New)), plain(strconv.Itoa(r.Waiting)),
				plain(budget), plain(expires), plain(r.refusals()))
		}
	})
	return t
}

// names shows which names of rules expire first: all if a filter asks for them, else the late ones.
func (v *view) names(now time.Time) *table {
	t := v.newTable("NAME ON DEMAND", "RULE", "AGENT", "STATE", "LEFT")
	v.each(func(g *agent) {
		for _, r := range g.last.OnDemand.Rules {
			for _, e := range r.Next {
				state := "held"
				if e.Late {
					state = "late"
				}
				if e.Late || v.filter != "" {
					t.row(plain(e.Name), plain(r.Name), plain(g.address), colored(state, grade(!e.Late)), plain(until(e.Ends, now)))
				}
			}
		}
	})
	return t
}

// newTable returns a table that names the agent only where there is room, if there is just one.
func (v *view) newTable(head ...string) *table {
	t := newTable(head...)
	t.filter = v.filter
	if len(v.agents) == 1 {
		t.dispensable("AGENT")
	}
	return t
}

// sentence is how much of an error needs room.
const sentence = 40

func (v *view) roots(now time.Time) *table {
	t := v.newTable("ROOT", "BUNDLE", "AGENT", "ENDS", "KEPT", "SUBJECT")
	v.each(func(g *agent) {
		for _, s := range g.last.Secrets {
			for _, r := range s.Roots {
				kept := plain("while its CA has it")
				if !r.KeptUntil.IsZero() {
					kept = colored("dropped, "+until(r.KeptUntil, now), cli.Red)
				}
				t.row(plain(short(r.Fingerprint)), plain(s.Name), plain(g.address), plain(until(r.NotAfter, now)), kept, plain(r.Subject))
			}
		}
	})
	return t
}

func (v *view) providers() *table {
	t := v.newTable("PROVIDER", "AGENT", "STATE", "VERSION", "RESTARTS", "LAST ERROR")
	t.last = sentence
	v.each(func(g *agent) {
		for _, p := range g.last.Providers {
			t.row(plain(p.Name), plain(g.address), colored(p.State, grade(p.State == "ready")), plain(dash(p.Version)), plain(strconv.Itoa(p.Restarts)), plain(p.LastError))
		}
	})
	return t
}

func (v *view) tokens(title string, of func(*report) *tokens) *table {
	t := v.newTable(title, "AGENT", "STATE", "KEYS", "HELD", "SIGNED", "REFUSED", "FAILURE")
	v.each(func(g *agent) {
		if j := of(&g.last); j != nil {
			t.row(plain(j.Provider), plain(g.address), colored(j.State, grade(j.well())), plain(strconv.Itoa(len(j.Keys))),
				plain(strconv.Itoa(j.Held)), plain(strconv.Itoa(j.Signed)), plain(strconv.Itoa(j.Refused)), plain(j.trouble()))
		}
	})
	return t
}

func (v *view) outputs(now time.Time) *table {
	t := v.newTable("OUTPUT", "AGENT", "STATE", "WRITTEN", "ERROR")
	t.last = sentence
	v.each(func(g *agent) {
		for _, o := range g.last.Outputs {
			t.row(plain(o.Name), plain(g.address), colored(o.State, grade(o.Failure.Text == "")), plain(until(o.Written, now)), plain(o.Failure.Text))
		}
	})
	return t
}

func (v *view) authorities() *table {
	t := v.newTable("AUTHORITY", "AGENT", "WAITING", "OLDEST", "IN FLIGHT", "RATE", "HELD")
	v.each(func(g *agent) {
		for _, a := range g.last.Authorities {
			t.row(plain(a.Name), plain(g.address), plain(strconv.Itoa(a.Waiting)), plain(span(seconds(a.Oldest))), plain(strconv.Itoa(a.InFlight)),
				plain(strconv.FormatFloat(a.Rate, 'g', 3, 64)), plain(span(seconds(a.Held))))
		}
	})
	return t
}

func (v *view) streams(now time.Time) *table {
	t := v.newTable("STREAM OF", "AGENT", "NODE", "OPEN", "LAST PUSH", "PUSHES", "ACCEPTED", "REJECTED").dispensable("ACCEPTED", "PUSHES")
	v.each(func(g *agent) {
		for _, s := range slices.Concat(g.last.Streams, g.last.Server.Streams) {
			t.row(plain(dash(s.Caller+s.Identity)), plain(g.address), plain(dash(s.Node)), plain(span(now.Sub(s.Since))), plain(until(s.LastPush, now)),
				plain(strconv.Itoa(s.Pushed)), plain(strconv.Itoa(s.Acked)), colored(strconv.Itoa(s.Nacked), map[bool]cli.Color{true: cli.Red}[s.Nacked > 0]))
		}
	})
	return t
}

// newest is how many events are shown above the streams.
const newest = 8

// happened lists events, the newest first, without the first from.
func (v *view) happened(title string, from, to int) *table {
	t := v.newTable(title, "AGENT", "WHAT")
	for i := from; i < min(to, len(v.events)); i++ {
		e := v.events[len(v.events)-1-i]
		t.row(plain(e.at.UTC().Format(time.TimeOnly)), plain(e.from), colored(e.text, grade(e.well)))
	}
	return t
}

// each calls do for each agent that has answered.
func (v *view) each(do func(*agent)) {
	for _, g := range v.agents {
		if g.known {
			do(g)
		}
	}
}

// until returns how far off a time is; "-" if it is not set.
func until(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case t.Before(now):
		return span(now.Sub(t)) + " ago"
	}
	return span(t.Sub(now))
}

// seconds is a duration, with a bound for foreign numbers.
func seconds(s float64) time.Duration {
	return time.Duration(max(0, min(s, 1e9)) * float64(time.Second))
}

// span formats a duration in one or two units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 10*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", max(0, d)/time.Second)
}
