package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/output"
)

// told returns a recorder with events of the output "web".
func toldOf(events ...output.Event) *Recorder {
	r := &Recorder{}
	r.Outputs([]Output{{Name: "web", Folder: "/etc/web"}})
	for _, e := range events {
		e.Output = "web"
		r.Output(e)
	}
	return r
}

func TestOutputIsBehindUntilWrittenAndReloaded(t *testing.T) {
	written := output.Event{Type: output.Written, NotAfter: time.Now().Add(time.Hour)}
	full := output.Event{Type: output.WriteFailed, Text: "no space left\x1b"}
	deaf := output.Event{Type: output.ReloadFailed, Text: "exit status 1: bad config"}
	for _, c := range []struct {
		name   string
		events []output.Event
		state  string
		grade  string
		said   string
	}{
		{"nothing yet", nil, "waiting", fair, ""},
		{"written", []output.Event{written}, "current", good, ""},
		{"a full disk at the start", []output.Event{full}, "not-written", bad, `no space left\x1b`},
		{"a full disk later", []output.Event{written, full, full}, "not-written", bad, `no space left\x1b`},
		{"space again", []output.Event{full, written}, "current", good, ""},
		{"not reloaded", []output.Event{written, deaf}, "not-told", bad, "exit status 1: bad config"},
		{"written again, still not reloaded", []output.Event{written, deaf, written}, "not-told", bad, "exit status 1: bad config"},
		{"told", []output.Event{written, deaf, {Type: output.Reloaded}}, "current", good, ""},
		{"neither written nor reloaded", []output.Event{written, deaf, full}, "not-written", bad, `no space left\x1b`},
	} {
		r := complete(toldOf(c.events...), Report{At: time.Now()})
		o, said := r.Outputs[0], ""
		if o.Failure != nil {
			said = o.Failure.Text
		}
		if o.State != c.state || o.badge(r.At).Grade != c.grade || said != c.said {
			t.Errorf("%s: %s, %s, %q", c.name, o.State, o.badge(r.At).Grade, said)
		}
		if sum := r.Summary(); c.grade == bad != (sum.Grade == bad && strings.Contains(sum.Words, "Files are behind: web.")) {
			t.Errorf("%s: the page shows %+v", c.name, sum)
		}
		now := slices.ContainsFunc(r.Errors, func(e Error) bool { return e.Now && e.Where == "output web" && e.Does != "" && e.Do != "" })
		if now != (c.said != "") {
			t.Errorf("%s: the errors are %+v", c.name, r.Errors)
		}
	}
}

func TestOutputFailureKeepsItsBeginning(t *testing.T) {
	failed := output.Event{Type: output.WriteFailed, Text: "full"}
	r := toldOf(failed)
	began := r.currentOutputs()[0].Failure.Since
	r.Output(output.Event{Output: "web", Type: output.WriteFailed, Text: "still full"})
	if f := r.currentOutputs()[0].Failure; f.Since != began || f.Tries != 2 || f.Text != "still full" {
		t.Errorf("got %+v", f)
	}
	r.Output(output.Event{Output: "another", Type: output.Written}) // not configured
}

func TestExpiredFilesAreShown(t *testing.T) {
	end := time.Now().Add(time.Hour)
	r := toldOf(output.Event{Type: output.Written, NotAfter: end})
	if got := complete(r, Report{At: end.Add(-time.Minute)}); got.Summary().Grade != good {
		t.Errorf("got %+v", got.Summary())
	}
	got := complete(r, Report{At: end.Add(time.Minute)})
	if got.Summary().Grade != bad || !strings.Contains(strings.Join(got.Warnings(), ","), "Files are behind: web") {
		t.Errorf("got %+v, %q", got.Summary(), got.Warnings())
	}
	if _, doc := open(t, got); !strings.Contains(text(doc), "the files have expired") {
		t.Error("the page does not say so")
	}
}
