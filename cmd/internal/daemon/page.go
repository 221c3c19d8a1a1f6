package daemon

import (
	"cmp"
	_ "embed" // the frame
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
)

// Grades of severity.
const (
	Good = "good"
	Fair = "fair" // serving is not affected yet
	Bad  = "bad"
)

// Mark is a state in words, with its grade.
type Mark struct{ Words, Grade string }

// Problem is a problem for an operator: what is wrong, the error, and what to do.
type Problem struct {
	Grade, What, Detail, Do string
	At                      time.Time // zero if unknown
}

// WorstFirst sorts problems, those of the same grade in their order.
func WorstFirst(all []Problem) []Problem {
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Grade, b.Grade) }) // bad is before fair
	return all
}

// maxProblems limits what the page lists; /status.json has no limits.
const maxProblems = 50

// Frame is what the pages of all programs begin and end with. A page's template has it at
// .Frame, writes {{template "top" .Frame}} and {{template "bottom" .Frame}}, and its own
// sections between.
type Frame struct {
	Program  string
	At       time.Time
	Build    buildinfo.Info
	Summary  Mark
	Problems []Problem // worst first
	// Process is {{template "process" .Frame}}, a section.
	Process Process
	// Providers are those of {{template "providers" .Frame}}, a table.
	Providers []overview.Provider
}

// When returns t relative to the time of the page.
func (f Frame) When(t time.Time) operatorpage.Moment { return operatorpage.At(t, f.At) }

// First returns the troubles to show.
func (f Frame) First() []Problem { return f.Problems[:min(maxProblems, len(f.Problems))] }

// Rest returns how many troubles are left out.
func (f Frame) Rest() int { return max(0, len(f.Problems)-maxProblems) }

var (
	//go:embed frame.html
	frame string
	//go:embed page.css
	ownStyle string
)

// style is the style of all pages of operators and the additions for these.
var style = operatorpage.Style + ownStyle

// Template returns the template of a page. It escapes text from clients and API servers.
func Template(text string, funcs template.FuncMap) *template.Template {
	return template.Must(template.Must(template.New("page").Funcs(template.FuncMap{
		"or_bad": func(grade string) string { return cmp.Or(grade, Bad) },
		"style":  func() template.CSS { return template.CSS(style) },             // #nosec G203 -- embedded in this program
		"script": func() template.JS { return template.JS(operatorpage.Script) }, // #nosec G203 -- as the style
	}).Funcs(funcs).Parse(frame)).Parse(text))
}

// Show writes a page.
func Show(w http.ResponseWriter, page *template.Template, data any) {
	operatorpage.SetHeaders(w, style)
	_ = page.Execute(w, data) // a client that went away
}
