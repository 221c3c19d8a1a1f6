package main

import (
	"cmp"
	_ "embed" // the page
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/fleet"
	"github.com/countersign-dev/countersign/control-plane/kubernetes/secrets"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/discovery/folder"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	ownStyle string
)

// pageStyle is that of all pages, and what this one has beside it.
var pageStyle = operatorpage.Style + ownStyle

// maxStreams and maxTroubles are how many are on the page; /status.json has all.
const (
	maxStreams  = 200
	maxTroubles = 50
)

// pageTemplate escapes what clients and API servers have said.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"short": short,
	"head":  func(version string) string { return version[:min(8, len(version))] },
	"held":  markOf,
	"cluster": func(s fleet.State) string {
		return map[fleet.State]string{fleet.Synced: good, fleet.Connecting: fair}[s]
	},
	"watched": func(s secrets.State) string {
		return map[secrets.State]string{secrets.Valid: good, secrets.Ending: fair}[s]
	},
	"file":   func(s folder.State) string { return map[folder.State]string{folder.Served: good, folder.Kept: fair}[s] },
	"or_bad": func(grade string) string { return cmp.Or(grade, bad) },
	"style":  func() template.CSS { return template.CSS(pageStyle) },         // #nosec G203 -- ours, whole and embedded
	"script": func() template.JS { return template.JS(operatorpage.Script) }, // #nosec G203 -- as the style
}).Parse(pageText))

// short is of a type URL what tells it from others.
func short(url string) string { return url[strings.LastIndexAny(url, "./")+1:] }

// view is a report as a page shows it.
type view struct{ report }

// When is a time, seen from that of the report.
func (v view) When(t time.Time) operatorpage.Moment { return operatorpage.At(t, v.At) }

// First are the troubles that are shown.
func (v view) First() []trouble { return v.Troubles()[:min(maxTroubles, len(v.Troubles()))] }

// Rest is how many troubles are not shown.
func (v view) Rest() int { return max(0, len(v.Troubles())-maxTroubles) }

// Streams are those that are shown: first whoever refuses something, then as they came.
func (v view) Streams() []discovery.StreamStatus {
	refuses := func(s discovery.StreamStatus) bool {
		return slices.ContainsFunc(s.Types, discovery.TypeStatus.Refusing)
	}
	all := slices.Clone(v.Server.Streams)
	slices.SortStableFunc(all, func(a, b discovery.StreamStatus) int {
		switch {
		case refuses(a) == refuses(b):
			return 0
		case refuses(a):
			return -1
		}
		return 1
	})
	return all[:min(maxStreams, len(all))]
}

// Answered is what has become of the last push of a type.
func (v view) Answered(t discovery.TypeStatus) mark {
	switch {
	case t.Refusing():
		return mark{"refused " + v.When(t.Refused.At).Far, bad}
	case t.Pushes == 0:
		return mark{"nothing to send yet", fair}
	case t.Acked != t.Sent:
		return mark{"no answer yet", fair}
	}
	return mark{"taken", good}
}

// show writes the report as a page.
func show(w http.ResponseWriter, r report) {
	operatorpage.SetHeaders(w, pageStyle)
	_ = pageTemplate.Execute(w, view{r}) // a client that went away
}
