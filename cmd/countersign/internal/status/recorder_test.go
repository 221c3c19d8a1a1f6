package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func complete(r *Recorder, report Report) Report {
	r.Complete(&report)
	return report
}

func TestRepeatedErrorIsCountedAndDisplacesNoOther(t *testing.T) {
	var r Recorder
	for i := range 3 * maxErrors {
		r.Secret(secret.Event{Kind: secret.Failed, Secret: "default", Reason: "denied", Failure: &secret.Failure{At: time.Unix(int64(i), 0), Action: ca.EndAttempt, Text: fmt.Sprint(i)}})
	}
	for i := range maxErrors - 1 {
		r.Secret(secret.Event{Kind: secret.Failed, Secret: fmt.Sprint(i), Reason: "denied", Failure: &secret.Failure{At: time.Unix(1000+int64(i), 0)}})
	}
	got := complete(&r, Report{}).Errors
	if len(got) != maxErrors {
		t.Fatalf("there are %d", len(got))
	}
	oldest := got[len(got)-1]
	if oldest.Where != "secret default" || oldest.Count != 3*maxErrors || oldest.Text != "59" || oldest.Does != does[ca.EndAttempt] || oldest.Do != advice["denied"] {
		t.Errorf("got %+v", oldest)
	}
	r.Secret(secret.Event{Kind: secret.Failed, Authority: "file", Reason: "roots", Failure: &secret.Failure{At: time.Unix(2000, 0)}})
	if got := complete(&r, Report{}).Errors; len(got) != maxErrors || got[0].Where != "roots of file" || got[len(got)-1].Where != "secret 0" {
		t.Errorf("the newest is %q, the oldest %q", got[0].Where, got[len(got)-1].Where)
	}
}

func TestErrorIsResolvedWhenStatusDropsIt(t *testing.T) {
	var r Recorder
	failure := &secret.Failure{At: time.Unix(1, 0), Text: "away"}
	r.Secret(secret.Event{Kind: secret.Failed, Secret: "default", Reason: "unavailable", Failure: failure})
	if got := complete(&r, Report{Secrets: []secret.Status{{Name: "default", Failure: failure}}}); !got.Errors[0].Now {
		t.Error("it has not been overcome")
	}
	if got := complete(&r, Report{Secrets: []secret.Status{{Name: "default"}}}); got.Errors[0].Now {
		t.Error("it has been overcome")
	}
}

// The engine retries at once after a change, and the status may be that of the next attempt.
func TestErrorStaysUnresolvedWhileItsReasonLasts(t *testing.T) {
	var r Recorder
	r.Secret(secret.Event{Kind: secret.Failed, Secret: "default", Reason: "denied", Failure: &secret.Failure{At: time.Unix(1, 0), Reason: "denied"}})
	for reason, want := range map[string]bool{"denied": true, "unavailable": false} {
		got := complete(&r, Report{Secrets: []secret.Status{{Name: "default", Failure: &secret.Failure{At: time.Unix(9, 0), Reason: reason}}}})
		if got.Errors[0].Now != want {
			t.Errorf("the secret is %s, and the error is unresolved: %t", reason, got.Errors[0].Now)
		}
	}
}

func TestLastErrorOfAStoppedProviderIsUnresolved(t *testing.T) {
	var r Recorder
	r.Provider(pluginhost.Status{Name: "file", State: pluginhost.Refused, Since: time.Unix(1, 0), LastError: "no such folder"})
	r.Provider(pluginhost.Status{Name: "file", State: pluginhost.Backoff, Since: time.Unix(2, 0), LastError: "killed"})
	for state, want := range map[string]bool{"starting": true, "ready": false} {
		got := complete(&r, Report{Providers: []overview.Provider{{Name: "file", State: state}}}).Errors
		if got[0].Now != want || got[1].Now {
			t.Errorf("the provider is %s: %+v", state, got)
		}
	}
}

func TestProviderFaultIsRecordedOnce(t *testing.T) {
	var r Recorder
	s := pluginhost.Status{Name: "file", State: pluginhost.Backoff, Since: time.Unix(1, 0), LastError: "it was killed"}
	r.Provider(s)
	s.State = pluginhost.Starting
	r.Provider(s) // nothing new
	s.State, s.LastError, s.LastReload = pluginhost.Ready, "", "no such folder"
	r.Provider(s)
	r.Provider(s)
	got := complete(&r, Report{Providers: []overview.Provider{overview.ProviderOf(s)}}).Errors
	if len(got) != 2 || got[0].Reason != turnedDown.reason || got[0].Count != 1 || !got[0].Now ||
		got[1].Reason != ended.reason || got[1].Count != 1 || got[1].Now {
		t.Errorf("got %+v", got)
	}
	s.LastReload = ""
	r.Provider(s)
	s.LastReload = "no such folder"
	r.Provider(s)
	if got := complete(&r, Report{}).Errors; got[0].Count != 2 {
		t.Errorf("got %+v", got[0])
	}
}

func TestRefusedSecretIsRecordedBesideRefusedReload(t *testing.T) {
	var r Recorder
	s := pluginhost.Status{Name: "file", State: pluginhost.Ready, LastReload: "no such folder"}
	r.Provider(s)
	s.LastSecret = "the CA refuses (secret)"
	r.Provider(s)
	r.Provider(s)
	got := complete(&r, Report{Providers: []overview.Provider{overview.ProviderOf(s)}}).Errors
	if len(got) != 2 || got[0].Reason != untaken.reason || got[0].Count != 1 || !got[0].Now || got[1].Reason != turnedDown.reason || !got[1].Now {
		t.Errorf("got %+v", got)
	}
	s.LastSecret = ""
	if got := complete(&r, Report{Providers: []overview.Provider{overview.ProviderOf(s)}}).Errors; got[0].Now || !got[1].Now {
		t.Errorf("the secret was taken: %+v", got)
	}
	if got := overview.ProviderOf(pluginhost.Status{State: pluginhost.Ready, LastSecret: "x"}).Mark(); got.Grade != "fair" {
		t.Errorf("got %+v", got)
	}
}

func TestStreamsThatFailHandshakesOnDemandAreFound(t *testing.T) {
	configured := []secret.Status{{Name: "default"}, {Name: "web.example.org"}}
	for title, c := range map[string]struct {
		events func(stream uint64) []xds.Event[secret.Caller]
		want   string
	}{
		"delta, one stream": {func(uint64) []xds.Event[secret.Caller] {
			return []xds.Event[secret.Caller]{{Kind: xds.Pushed, Stream: 1, Delta: true, Names: []string{"a.example.org"}}, {Kind: xds.Pushed, Stream: 1, Delta: true, Names: []string{"b.example.org"}}}
		}, ""},
		"delta, a stream each": {func(n uint64) []xds.Event[secret.Caller] {
			return []xds.Event[secret.Caller]{{Kind: xds.Pushed, Stream: n, Delta: true, Names: []string{"a.example.org"}}}
		}, "a stream for each name on demand, 150 now"},
		"state of the world, refused": {func(n uint64) []xds.Event[secret.Caller] {
			return []xds.Event[secret.Caller]{{Kind: xds.Refused, Stream: n, Client: xds.ClientText{Names: []string{"a.example.org"}}}}
		}, "by state of the world"},
		"state of the world, beside a configured secret": {func(n uint64) []xds.Event[secret.Caller] {
			return []xds.Event[secret.Caller]{{Kind: xds.Pushed, Stream: n, Names: []string{"default"}}, {Kind: xds.Pushed, Stream: n, Names: []string{"a.example.org"}}}
		}, "by state of the world"},
		"countersign secrets": {func(n uint64) []xds.Event[secret.Caller] {
			return []xds.Event[secret.Caller]{{Kind: xds.Pushed, Stream: n, Names: []string{"a.example.org"}, Client: xds.ClientText{Node: "countersign-secrets"}}}
		}, ""},
		"configured secrets": {func(n uint64) []xds.Event[secret.Caller] {
			return []xds.Event[secret.Caller]{{Kind: xds.Pushed, Stream: n, Names: []string{"web.example.org"}}}
		}, ""},
		"a secret of files": {func(n uint64) []xds.Event[secret.Caller] {
			return []xds.Event[secret.Caller]{{Kind: xds.Pushed, Stream: n, Names: []string{"file-cert:/a.example.org"}}}
		}, ""},
		"ended": {func(n uint64) []xds.Event[secret.Caller] {
			return []xds.Event[secret.Caller]{{Kind: xds.Pushed, Stream: n, Names: []string{"a.example.org"}}, {Kind: xds.Closed, Stream: n}}
		}, ""},
	} {
		var r Recorder
		for n := range uint64(150) {
			for _, e := range c.events(n + 1) {
				r.Stream(e)
			}
		}
		report := Report{Secrets: configured, OnDemand: &ondemand.Status{}}
		r.Complete(&report)
		got := strings.Join(report.Warnings(), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", title, got)
		}
	}
}

func TestOpenStreamsAreRecordedUntilTheyEnd(t *testing.T) {
	var r Recorder
	caller := secret.Caller{ID: "uid:0", PID: 7}
	tell := func(kind xds.EventKind, stream uint64) {
		r.Stream(xds.Event[secret.Caller]{Kind: kind, Stream: stream, Caller: caller, Client: xds.ClientText{Node: "envoy\x1b", Names: []string{"a", "b"}, Message: strings.Repeat("x", 1000)}})
	}
	for id := range uint64(maxStreams + 10) {
		tell(xds.Opened, id+1)
	}
	for _, kind := range []xds.EventKind{xds.Pushed, xds.Acked, xds.Nacked, xds.Refused} {
		tell(kind, 60)
	}
	tell(xds.Closed, 59)
	tell(xds.Pushed, 0) // a fetch
	got := complete(&r, Report{})
	if len(got.OpenStreams) != maxStreams || got.OpenStreams[1].ID != 58 {
		t.Fatalf("there are %d, %+v", len(got.OpenStreams), got.OpenStreams[1])
	}
	newest := got.OpenStreams[0]
	if newest.ID != 60 || newest.Caller != "uid:0 pid:7" || newest.Node != `envoy\x1b` || newest.Pushed != 1 || newest.Acked != 1 || newest.Nacked != 1 || newest.LastPush.IsZero() {
		t.Errorf("got %+v", newest)
	}
	if want := (Events{Opened: 60, Closed: 1, Pushed: 2, Acked: 1, Nacked: 1, Refused: 2}); got.Events != want {
		t.Errorf("got %+v", got.Events)
	}
	if e := got.Errors; len(e) != 1 || e[0].Where != "stream of uid:0" || len(e[0].Text) > 256 {
		t.Errorf("got %+v", e)
	}
}

func TestRecordedStreamsAreBounded(t *testing.T) {
	var r Recorder
	for id := range uint64(maxKept + 100) {
		r.Stream(xds.Event[secret.Caller]{Kind: xds.Opened, Stream: id + 1, Err: errors.New("x")})
	}
	if len(r.streams.open) != maxKept {
		t.Errorf("there are %d", len(r.streams.open))
	}
}

func TestRefusedConfigurationIsShownUntilOneIsAccepted(t *testing.T) {
	var r Recorder
	r.Configuration(time.Unix(1, 0), nil, errors.New("ttl is 1ms: write 1s\x1b or more"))
	got := complete(&r, Report{})
	if got.Configuration.Refused != `ttl is 1ms: write 1s\x1b or more` || len(got.Errors) != 1 || !got.Errors[0].Now || got.Errors[0].Do == "" {
		t.Errorf("got %+v, %+v", got.Configuration, got.Errors)
	}
	if s := got.Summary(); s.Grade != "fair" || !strings.Contains(s.Words, "configuration was refused") {
		t.Errorf("the page sums it up as %+v", s)
	}
	r.Configuration(time.Unix(2, 0), nil, nil)
	got = complete(&r, Report{})
	if got.Configuration != (overview.Configuration{At: time.Unix(2, 0)}) || got.Errors[0].Now || got.Summary().Grade != "good" {
		t.Errorf("got %+v, %+v", got.Configuration, got.Errors)
	}
}
