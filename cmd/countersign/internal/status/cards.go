package status

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// secret writes a secret in full; id is its anchor.
func (m *markup) secret(r Report, id string, s secret.Status) {
	m.put("\n<article id=\"%v\">\n<h3>%v</h3>\n", id, clean(s.Name))
	m.badge(r.BadgeOf(s))
	if s.Item != nil {
		m.life(r.LifeOf(s.Item), s.Item.Kind == secret.TrustBundle)
	}
	m.put("\n<dl class=\"facts\">\n")
	m.ends(r.Ends[s.Name], s)
	m.firstRoot(s)
	if s.Item == nil || s.Asked != s.Item.Identity.String() {
		m.put("<dt>Requested</dt><dd class=\"id\">%v</dd>\n", clean(s.Asked))
	}
	if s.Item != nil {
		m.item(s.Item)
	} else {
		m.put("<dt>Requested from</dt><dd>%v</dd>\n", cleanAll(s.Authorities))
	}
	m.put("<dt>Kind</dt><dd>%v</dd>\n", clean(s.Kind))
	if s.Restored {
		m.put("<dt>Restored</dt><dd>from the last run</dd>\n")
	}
	asking := ""
	if s.Asking {
		asking = "; a request is in flight"
	}
	m.put("<dt>Rotations</dt><dd>%v%v</dd>\n", s.Rotations, asking)
	m.advice(s.Advice)
	m.token(s.TokenExpiry)
	m.fact("Missing", s.Missing)
	m.revocation(s.Revocation)
	m.failure("Pending request", s.Pending)
	m.failure("Last failure", s.Failure)
	m.put("</dl>\n</article>")
}

// ends writes when a CA certificate above the held one ends, and whether that cuts it short.
func (m *markup) ends(t Term, s secret.Status) {
	if s.Item == nil || t.NotAfter.IsZero() {
		return
	}
	if t.cut(s.Item) {
		m.put("<dt>Lifetime</dt><dd><span class=\"mark fair\">cut short</span> by the end of the CA</dd>\n")
	}
	m.put("<dt>First CA to end</dt><dd>%v, ", t.Subject)
	m.moment(t.NotAfter)
	m.put("</dd>\n")
}

// firstRoot writes which of several roots ends first.
func (m *markup) firstRoot(s secret.Status) {
	if len(s.Roots) < 2 {
		return
	}
	first := slices.MinFunc(s.Roots, func(a, b secret.Root) int { return a.NotAfter.Compare(b.NotAfter) })
	m.put("<dt>First of %v roots to end</dt><dd>%v, ", len(s.Roots), clean(first.Subject))
	m.moment(first.NotAfter)
	m.put("</dd>\n")
}

// life draws the bar from issue to expiry, and its scale.
func (m *markup) life(l life, bundle bool) {
	turn := "Renewal"
	if bundle {
		turn = "Next root due"
	}
	renewal := ""
	if !l.Renew.IsZero() {
		renewal = "; " + strings.ToLower(turn) + " " + operatorpage.At(l.Renew, m.now).Far
	}
	m.put(`
<svg class="life" viewBox="0 0 1000 16" preserveAspectRatio="none" role="img" aria-label="%v %% of its lifetime is over%v; expires %v">
<rect class="track" width="1000" height="16"/>`, l.Percent(), renewal, operatorpage.At(l.Until, m.now).Far)
	if !l.Renew.IsZero() {
		m.put("\n<rect class=\"late\" x=\"%v\" width=\"%v\" height=\"16\"/>", l.Turn, l.Left())
	}
	m.put("\n<rect class=\"gone\" width=\"%v\" height=\"16\"/>", l.Gone)
	if !l.Renew.IsZero() {
		m.put("\n<line class=\"turn\" x1=\"%v\" x2=\"%v\" y1=\"0\" y2=\"16\"/>", l.Turn, l.Turn)
	}
	m.put("\n</svg>\n<dl class=\"scale\">\n")
	from, until := "Issued", "Expiry"
	if bundle {
		from, until = "First root from", "Last root until"
	}
	m.put("<div>")
	m.at(from, l.From)
	m.put("</div>\n")
	if !l.Renew.IsZero() {
		m.put("<div>")
		m.at(turn, l.Renew)
		m.put("</div>\n")
	}
	m.put("<div>")
	m.at(until, l.Until)
	m.put("</div>\n</dl>")
}

func (m *markup) item(i *secret.Item) {
	if !i.Identity.IsZero() {
		m.id("Identity", clean(i.Identity.String()))
	}
	m.code("Serial", clean(i.Serial))
	m.code("SHA-256", clean(i.Fingerprint))
	m.code("Root", short(i.RootFingerprint))
	by, signer := "Signed by", ""
	if i.Kind == secret.TrustBundle {
		by = "Roots of"
	}
	if i.Signer != "" {
		signer = " (provider " + clean(i.Signer) + ")"
	}
	m.put("<dt>%v</dt><dd>%v%v</dd>\n", by, clean(i.Authority), signer)
}

// advice writes when the authority would have the certificate renewed, and why.
func (m *markup) advice(a *secret.Advice) {
	if a == nil {
		return
	}
	m.put("<dt>Renewal advised</dt><dd>from ")
	m.moment(a.WindowStart)
	m.put(" to ")
	m.moment(a.WindowEnd)
	if a.Explanation != "" {
		m.put("; see %v", clean(a.Explanation))
	}
	m.put("</dd>\n")
}

// token writes when the token for the next request expires.
func (m *markup) token(end time.Time) {
	if end.IsZero() {
		return
	}
	m.put("<dt>Token for the next request</dt><dd>")
	if end.After(m.now) {
		m.put("valid until ")
	} else {
		m.put(`<span class="mark bad">expired</span> `)
	}
	m.moment(end)
	m.put("</dd>\n")
}

// revocation writes the lists that certificates are checked against, and who is refused without one.
func (m *markup) revocation(r *secret.Revocation) {
	if r == nil {
		return
	}
	for _, list := range r.Lists[:min(maxList, len(r.Lists))] {
		m.put("<dt>Revocation list</dt><dd>%v: %v revoked; next one due ", clean(list.CA), list.Revoked)
		m.moment(list.NextUpdate)
		m.put("</dd>\n")
	}
	what := "Refused: no list available"
	if r.Dropped {
		what = "Revocation is not checked: no list available"
	}
	m.fact(what, cleanAll(r.Without))
	if r.Failure != nil {
		m.fact("Invalid list", clean(r.Failure.Text))
	}
}

// failure writes how the last attempt ended, and when the next one comes.
func (m *markup) failure(title string, f *secret.Failure) {
	if f == nil {
		return
	}
	m.put("<dt>%v</dt><dd>%v, ", title, clean(f.Reason))
	m.moment(f.At)
	if f.NextTry.After(m.now) {
		m.put("; next attempt %v", operatorpage.At(f.NextTry, m.now).Far)
	}
	m.put("</dd>\n")
}

// errors writes those that are over; [markup.problems] has the others.
func (m *markup) errors(r Report) {
	m.section("errors", "Last errors", func() {
		past := alike(r.Errors, false)
		for _, e := range past {
			m.error(e)
		}
		switch {
		case len(r.Errors) == 0:
			m.put("<p>None since the agent started.</p>")
		case len(past) == 0:
			m.put("<p>All errors since the agent started are unresolved.</p>")
		}
		m.put("\n")
	})
}

func (m *markup) error(e sameError) {
	present, state, words := "", "past", "earlier"
	where := clean(e.Where)
	if e.more > 0 {
		where += " and " + strconv.Itoa(e.more) + " more"
	}
	if e.Now {
		present, state, words = "present", "bad", "unresolved"
	}
	m.put("\n<article class=\"error %v\">\n<h3>%v: %v</h3>\n", present, where, clean(e.Reason))
	m.put("<p><span class=\"mark %v\">%v</span> ", state, words)
	m.moment(e.At)
	if e.Count > 1 {
		m.put(", %v times", e.Count)
	}
	m.put("</p>\n<blockquote>%v</blockquote>\n<dl class=\"facts\">", clean(e.Text))
	m.fact("The agent", e.Does)
	m.fact("What to do", e.Do)
	m.put("</dl>\n</article>")
}

func (m *markup) providers(r Report) {
	m.section("providers", "Providers", func() {
		m.put("<div class=\"cards\">")
		for n, p := range r.Providers {
			m.provider(anchor("provider", n), p)
		}
		if len(r.Providers) == 0 {
			m.put("<p>No provider is configured.</p>")
		}
		m.put("\n</div>\n")
	})
}

func (m *markup) provider(id string, p overview.Provider) {
	m.put("\n<article id=\"%v\">\n<h3>%v</h3>\n", id, clean(p.Name))
	m.badge(badge(p.Mark()))
	m.put("<dl class=\"facts\">\n<dt>Since</dt><dd>")
	m.moment(p.Since)
	version := ""
	if p.Version != "" {
		version = ", version " + clean(p.Version)
	}
	m.put("</dd>\n<dt>Provider</dt><dd>%v%v</dd>\n", clean(p.Provider), version)
	m.fact("Abilities", cleanAll(p.Abilities))
	m.fact("Facts", cleanAll(p.Facts))
	m.fact("Restarts", strconv.Itoa(p.Restarts))
	m.fact("Reloads", strconv.Itoa(p.Reloads))
	if p.PID != 0 {
		m.fact("Process", strconv.Itoa(p.PID))
	}
	m.at("Next start", p.NextStart)
	m.fact("Last error", clean(p.LastError))
	m.fact("Refused reload", clean(p.LastReload))
	m.fact("Refused secret", clean(p.LastSecret))
	m.id("Binary", clean(p.Path))
	m.code("SHA-256", clean(p.SHA256))
	m.fact("Authentication", clean(p.Authentication))
	m.put("</dl>\n</article>")
}
