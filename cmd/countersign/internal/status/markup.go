package status

import (
	"bytes"
	"fmt"
	"html"
	"time"

	"github.com/countersign-dev/countersign/internal/program/operatorpage"
)

// markup is a page being written. It replaces html/template, which calls methods by name and
// so makes the linker keep every method of every Envoy message, 5 MB in all.
type markup struct {
	out bytes.Buffer
	now time.Time
}

// put writes markup. Its arguments (%v) are escaped, for use as text or as an attribute's
// value in double quotes.
func (m *markup) put(ours string, args ...any) {
	escaped := make([]any, len(args))
	for i, arg := range args {
		escaped[i] = html.EscapeString(fmt.Sprint(arg))
	}
	fmt.Fprintf(&m.out, ours, escaped...)
}

// moment writes a time.
func (m *markup) moment(t time.Time) {
	at := operatorpage.At(t, m.now)
	m.put(`<time datetime="%v">%v <span class="far">(%v)</span></time>`, at.Exact, at.Shown, at.Far)
}

// badge writes a state.
func (m *markup) badge(s badge) { m.put(`<p><span class="mark %v">%v</span></p>`, s.Grade, s.Words) }

// fact writes one line of a list of facts, unless it is empty.
func (m *markup) fact(name, value string) {
	if value != "" {
		m.put("<dt>%v</dt><dd>%v</dd>\n", name, value)
	}
}

// code is a fact in a monospaced font; id is one that may wrap anywhere.
func (m *markup) code(name, value string) {
	if value != "" {
		m.put("<dt>%v</dt><dd><code>%v</code></dd>\n", name, value)
	}
}

func (m *markup) id(name, value string) {
	if value != "" {
		m.put("<dt>%v</dt><dd class=\"id\">%v</dd>\n", name, value)
	}
}

// at is a fact that is a time, unless it is zero.
func (m *markup) at(name string, t time.Time) {
	if t.IsZero() {
		return
	}
	m.put("<dt>%v</dt><dd>", name)
	m.moment(t)
	m.put("</dd>\n")
}

// section writes a part of the page; inside writes its content.
func (m *markup) section(id, title string, inside func()) {
	m.put("\n<section aria-labelledby=\"%v-title\" id=\"%v\" data-live>\n<h2 id=\"%v-title\">%v</h2>\n", id, id, id, title)
	inside()
	m.put("</section>\n")
}

// table writes a table that scrolls on its own, by keyboard too.
func (m *markup) table(id, label, caption string, columns []string, rows func()) {
	m.put("<div class=\"scroll\" role=\"region\" tabindex=\"0\" id=\"%v\" aria-label=\"%v\">\n<table>\n<caption>%v</caption>\n<thead><tr>", id, label, caption)
	for _, column := range columns {
		class := ""
		if isNumber[column] {
			class = "n"
		}
		m.put(`<th scope="col" class="%v">%v</th>`, class, column)
	}
	m.put("</tr></thead>\n<tbody>")
	rows()
	m.put("</tbody></table></div>\n")
}

// isNumber are the columns that are aligned to the right.
var isNumber = map[string]bool{"Pushes": true, "Accepted": true, "Rejected": true}
