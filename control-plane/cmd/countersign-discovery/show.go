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

// pageStyle is the style of all pages and the additions for this one.
var pageStyle = operatorpage.Style + ownStyle

// Limits of what the page lists; /status.json has no limits.
const (
	maxStreams  = 200
	maxTroubles = 50
)

// pageTemplate escapes text from clients and API servers.
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
	"style":  func() template.CSS { return template.CSS(pageStyle) },         // #nosec G203 -- embedded in this program
	"script": func() template.JS { return template.JS(operatorpage.Script) }, // #nosec G203 -- as the style
}).Parse(pageText))

// short returns the last part of a type URL.
func short(url string) string { return url[strings.LastIndexAny(url, "./")+1:] }

// view is a report with the methods the page needs.
type view struct{ report }

// When returns t relative to the time of the report.
func (v view) When(t time.Time) operatorpage.Moment { return operatorpage.At(t, v.At) }

// First returns the troubles to show.
func (v view) First() []trouble { return v.Troubles()[:min(maxTroubles, len(v.Troubles()))] }

// Rest returns how many troubles are left out.
func (v view) Rest() int { return max(0, len(v.Troubles())-maxTroubles) }

// Streams returns the streams to show, rejecting ones first, else in order of arrival.
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

// Answered returns what became of the last push of a type.
func (v view) Answered(t discovery.TypeStatus) mark {
	switch {
	case t.Refusing():
		return mark{"rejected " + v.When(t.Refused.At).Far, bad}
	case t.Pushes == 0:
		return mark{"nothing to send yet", fair}
	case t.Acked != t.Sent:
		return mark{"no response yet", fair}
	}
	return mark{"accepted", good}
}

// show writes the page.
func show(w http.ResponseWriter, r report) {
	operatorpage.SetHeaders(w, pageStyle)
	_ = pageTemplate.Execute(w, view{r}) // a client that went away
}
