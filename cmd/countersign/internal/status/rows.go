package status

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// maxCards is how many secrets are shown in full. Of more, each has a row with a link to its
// details, so that the page stays small and what is wrong stays in sight.
const maxCards = 12

// maxRows bounds a refresh for an agent of thousands of secrets. The worst come first, and the
// query secret=NAME finds each.
const maxRows = 1000

// row is a secret with its state and its place in the report.
type row struct {
	secret.Status
	badge badge
	n     int
}

// rows returns the secrets, the worst first. Rows of the same grade come by their end; cards keep
// their places.
func (r Report) rows() (all []row) {
	for n, s := range r.Secrets {
		all = append(all, row{s, r.BadgeOf(s), n})
	}
	slices.SortStableFunc(all, func(a, b row) int {
		worst := cmp.Compare(rank[a.badge.Grade], rank[b.badge.Grade])
		if len(all) <= maxCards {
			return worst
		}
		return cmp.Or(worst, a.end().Compare(b.end()))
	})
	return all
}

// rank sorts the worst grade first.
var rank = map[string]int{bad: 0, fair: 1, good: 2}

// end is when what is held ends; zero: nothing is held.
func (w row) end() (end time.Time) {
	if w.Item != nil {
		end = w.Item.NotAfter
	}
	return end
}

// anchor is the id of an element of the page.
func anchor(kind string, n int) string { return kind + "-" + strconv.Itoa(n) }

// href leads to the details of a secret.
func (r Report) href(w row) string {
	if len(r.Secrets) <= maxCards {
		return "#" + anchor("secret", w.n)
	}
	return "?secret=" + url.QueryEscape(clean(w.Name))
}

func (m *markup) secrets(r Report) {
	m.put("\n<section aria-labelledby=\"secrets-title\" id=\"secrets\">\n<h2 id=\"secrets-title\">Secrets</h2>\n")
	m.put("<p id=\"filter\" hidden><label>Filter <input type=\"search\" id=\"pattern\" autocomplete=\"off\" spellcheck=\"false\"></label></p>\n")
	m.put("<div id=\"secret-list\" data-live>")
	switch all := r.rows(); {
	case len(all) == 0:
		m.put("<p>No secret is configured.</p>")
	case len(all) <= maxCards:
		m.put("<div class=\"cards\">")
		for _, w := range all {
			m.secret(r, anchor("secret", w.n), w.Status)
		}
		m.put("\n</div>")
	default:
		m.put("<ul class=\"rows\">")
		for _, w := range all[:min(maxRows, len(all))] {
			m.row(r, w)
		}
		if more := len(all) - maxRows; more > 0 {
			m.put("\n<li>%v more secrets, in no worse state: <a href=\"/status\">Status as JSON</a></li>", more)
		}
		m.put("\n</ul>")
	}
	m.put("\n</div>\n</section>\n")
}

func (m *markup) row(r Report, w row) {
	m.put("\n<li data-row><a id=\"%v\" href=\"%v\">%v</a> <span class=\"mark %v\">%v%v</span>",
		anchor("secret", w.n), r.href(w), clean(w.Name), w.badge.Grade, w.badge.Words, w.why())
	if end := w.end(); !end.IsZero() {
		m.put(" <span class=\"far\">until %v</span>", operatorpage.At(end, m.now).Shown)
	}
	m.put("</li>")
}

// why is the reason of the last failure, if there is one.
func (w row) why() string {
	if w.Failure == nil {
		return ""
	}
	return " (" + clean(w.Failure.Reason) + ")"
}

// opened writes the secrets of a name in full, above everything else.
func (m *markup) opened(r Report, name string) {
	if name == "" {
		return
	}
	m.section("opened", "Secret", func() {
		found := 0
		for _, s := range r.Secrets {
			if clean(s.Name) != name || found == maxCards {
				continue
			}
			m.secret(r, anchor("opened", found), s)
			if len(s.Roots) > 0 {
				m.rootsOf(anchor("opened-roots", found), s)
			}
			found++
		}
		if found == 0 {
			m.put("<p>No secret has the requested name.</p>")
		}
		m.put("\n<p><a href=\"/\">Close</a></p>\n")
	})
}
