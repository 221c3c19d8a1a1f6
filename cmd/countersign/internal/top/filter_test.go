package top

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

func TestFilterShowsRowsThatContainIt(t *testing.T) {
	var r report
	r.Secrets = []secret{{Name: "web", Held: true}, {Name: "db"}}
	ends := time.Now().Add(time.Hour)
	r.OnDemand.Rules = []rule{
		{Name: "shops", Held: 2, Late: 1, Refused: map[string]int{"budget": 3, "denied": 4}, Next: []expiry{{"a.example.org", ends, true}, {"b.example.org", ends, false}}},
		{Name: "sites", Held: 7, Next: []expiry{{"c.example.org", ends, false}}},
	}
	for filter, c := range map[string]struct{ shows, hides string }{
		"":         {"web,db,shops,1 late,budget 3, denied 4,sites,a.example.org", "b.example.org,c.example.org"},
		"shops":    {"shops,a.example.org,b.example.org", "web,sites,c.example.org"},
		"LATE":     {"shops,a.example.org", "web,sites,b.example.org"},
		"not held": {"db", "web,shops"},
		"c.exam":   {"c.example.org", "a.example.org,web"},
	} {
		v := viewOf(r)
		v.filter = cli.Filter(filter)
		shown := strings.Join(v.lines(200, time.Now(), unpainted), "\n")
		for want := range strings.SplitSeq(c.shows, ",") {
			if !strings.Contains(shown, want) {
				t.Errorf("%q does not show %s:\n%s", filter, want, shown)
			}
		}
		for other := range strings.SplitSeq(c.hides, ",") {
			if strings.Contains(shown, other) {
				t.Errorf("%q shows %s:\n%s", filter, other, shown)
			}
		}
	}
}

// JSON has all that an agent answered, so that a script must not take it for the filtered rows.
func TestFilterIsRefusedForJSON(t *testing.T) {
	cmd := Command(nil)
	cmd.SetArgs([]string{"unix:/absent/status", "-o", "json", "--filter", "late"})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--filter is for tables") {
		t.Error(err)
	}
}
