package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// lines are the events of a watch; open keeps it open behind them.
func lines(open bool, events ...string) (*http.Response, error) {
	var body io.Reader = strings.NewReader(strings.Join(events, "\n"))
	if open {
		reader, _ := io.Pipe()
		body = io.MultiReader(body, reader)
		return &http.Response{StatusCode: http.StatusOK, Body: struct {
			io.Reader
			io.Closer
		}{body, reader}}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
}

func object(kind, name, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q,"resourceVersion":%q}}}`, kind, name, version)
}

func TestWatchEndsAsServerEndsIt(t *testing.T) {
	stop := errors.New("enough")
	for name, test := range map[string]struct {
		events []string
		fails  func(error) bool
		seen   int
	}{
		"quietly":            {[]string{object(Added, "a", "2"), object(Bookmark, "", "3")}, func(err error) bool { return err == nil }, 2},
		"with its caller":    {[]string{object(Deleted, "stop", "2"), object(Added, "a", "3")}, func(err error) bool { return errors.Is(err, stop) }, 1},
		"gone":               {[]string{object(Added, "a", "2"), `{"type":"ERROR","object":{"code":410,"message":"too old"}}`}, func(err error) bool { return Answered(err, 410) }, 1},
		"an unknown error":   {[]string{`{"type":"ERROR","object":7}`}, func(err error) bool { return Answered(err, 500) }, 0},
		"no JSON":            {[]string{"sesame"}, func(err error) bool { return ca.ReasonFor(err) == ca.Unavailable }, 0},
		"half a line":        {[]string{object(Added, "a", "2"), `{"type":"ADD`}, func(err error) bool { return ca.ReasonFor(err) == ca.Unavailable }, 1},
		"a line without end": {[]string{`{"type":"` + strings.Repeat("x", 2<<10)}, func(err error) bool { return ca.ReasonFor(err) == ca.Internal }, 0},
	} {
		c := client(t, func(r *http.Request) (*http.Response, error) {
			if q := r.URL.Query(); q.Get("watch") != "1" || q.Get("resourceVersion") != "1" || q.Get("allowWatchBookmarks") != "true" || q.Get("timeoutSeconds") == "" {
				t.Errorf("%v", q)
			}
			return lines(false, test.events...)
		})
		seen := 0
		err := c.Watch(t.Context(), Call{Path: "/x"}, "1", func(e Event) error {
			if seen++; strings.Contains(string(e.Object), "stop") {
				return stop
			}
			return nil
		})
		if !test.fails(err) || seen != test.seen {
			t.Errorf("%s: %v after %d events", name, err, seen)
		}
	}
}

func TestWatchIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, func(r *http.Request) (*http.Response, error) {
			reader, writer := io.Pipe()
			go func() { <-r.Context().Done(); _ = writer.CloseWithError(r.Context().Err()) }()
			return &http.Response{StatusCode: http.StatusOK, Body: reader}, nil
		})
		begun := time.Now()
		err := c.Watch(t.Context(), Call{Path: "/x"}, "1", nil)
		if lasted := time.Since(begun); err == nil || lasted < watchFor || lasted > 2*time.Minute {
			t.Errorf("%v after %s", err, lasted)
		}
	})
}

// A refusal whose body never ends would leave the watch without a failure for minutes.
func TestRefusalOfWatchIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, func(r *http.Request) (*http.Response, error) {
			reader, writer := io.Pipe()
			go func() { <-r.Context().Done(); _ = writer.CloseWithError(r.Context().Err()) }()
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: reader}, nil
		})
		begun := time.Now()
		err := c.Watch(t.Context(), Call{Path: "/x"}, "1", nil)
		if lasted := time.Since(begun); ca.ReasonFor(err) != ca.Unavailable || lasted != callTimeout {
			t.Errorf("%v after %s", err, lasted)
		}
	})
}

// seen is an observer that writes down what it gets.
type seen struct {
	what  []string
	waits []time.Duration
}

func (s *seen) Begin()    { s.what = append(s.what, "begin") }
func (s *seen) Complete() { s.what = append(s.what, "complete") }
func (s *seen) See(e Event) {
	var o struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(e.Object, &o)
	s.what = append(s.what, e.Type+" "+o.Metadata.Name)
}

func (s *seen) Away(_ error, wait time.Duration) {
	s.what, s.waits = append(s.what, "away"), append(s.waits, wait)
}

// stopAt ends a body with its request, as a connection does.
func stopAt(r *http.Request, resp *http.Response) {
	body := resp.Body
	context.AfterFunc(r.Context(), func() { _ = body.Close() })
}

// joined writes what comes several times in a row once.
func joined(all []string) string {
	var parts []string
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n] == all[0] {
			n++
		}
		part := all[0]
		if n > 1 {
			part = fmt.Sprintf("%d × %s", n, part)
		}
		parts, all = append(parts, part), all[n:]
	}
	return strings.Join(parts, ", ")
}

// turn is one answer of a server.
type turn struct {
	err    error
	status int // 0: a watch
	body   string
	open   bool
	events []string
}

func (a turn) answer() (*http.Response, error) {
	switch {
	case a.err != nil:
		return nil, a.err
	case a.status != 0:
		return replies(a.status, a.body)
	}
	return lines(a.open, a.events...)
}

func TestFollowerListsOnceAndGoesOn(t *testing.T) {
	list := func(version string, names ...string) turn {
		var items []string
		for _, name := range names {
			items = append(items, `{"metadata":{"name":"`+name+`"}}`)
		}
		return turn{status: http.StatusOK, body: `{"metadata":{"resourceVersion":"` + version + `"},"items":[` + strings.Join(items, ",") + `]}`}
	}
	watch := func(open bool, events ...string) turn { return turn{open: open, events: events} }
	refuses := func(status int) turn { return turn{status: status, body: `{"message":"no"}`} }
	lost := turn{err: errors.New("connection refused")}
	for name, test := range map[string]struct {
		turns       []turn
		seen, asked string
	}{
		"changes": {
			[]turn{list("5", "a", "b"), watch(true, object(Modified, "a", "6"), object(Bookmark, "", "9"), object(Deleted, "b", "10"))},
			"begin, ADDED a, ADDED b, complete, MODIFIED a, BOOKMARK , DELETED b", "list, watch 5",
		},
		"a watch that is cut goes on": {
			[]turn{list("5"), watch(false, object(Bookmark, "", "9")), lost, watch(true, object(Added, "a", "10"))},
			"begin, complete, BOOKMARK , 2 × away, ADDED a", "list, watch 5, 2 × watch 9",
		},
		"a version that is gone": {
			[]turn{list("5", "a"), refuses(410), list("20"), watch(true)},
			"begin, ADDED a, complete, away, begin, complete", "list, watch 5, list, watch 20",
		},
		"a version of the future": {
			[]turn{list("5"), refuses(504), list("3"), watch(true)},
			"begin, complete, away, begin, complete", "list, watch 5, list, watch 3",
		},
		"a list that fails half-way": {
			[]turn{lost, refuses(403), list("5", "a"), watch(true)},
			"begin, away, begin, away, begin, ADDED a, complete", "3 × list, watch 5",
		},
		"an event without a version": {
			[]turn{list("5"), watch(true, `{"type":"ADDED","object":{}}`), list("6"), watch(true)},
			"begin, complete, away, begin, complete", "list, watch 5, list, watch 6",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked []string
			var got seen
			c := client(t, func(r *http.Request) (*http.Response, error) {
				what := "list"
				if q := r.URL.Query(); q.Has("watch") {
					what = "watch " + q.Get("resourceVersion")
				}
				asked = append(asked, what)
				resp, err := test.turns[len(asked)-1].answer()
				if err == nil {
					stopAt(r, resp)
				}
				return resp, err
			})
			f := &Follower{Client: c, Call: Call{Path: "/x"}, Observer: &got}
			stop := background.Run(f.Run)
			time.Sleep(time.Minute)
			stop()
			if all := joined(got.what); all != test.seen {
				t.Errorf("%s: saw %s; want %s", name, all, test.seen)
			}
			if all := joined(asked); all != test.asked {
				t.Errorf("%s: asked %s; want %s", name, all, test.asked)
			}
		})
	}
}

// An API server, or a proxy in front of it, that ends each watch is not asked all the time.
func TestFollowerWaitsLongerWhileServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got seen
		c := client(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Has("watch") {
				return lines(false)
			}
			return replies(200, `{"metadata":{"resourceVersion":"5"}}`)
		})
		f := &Follower{Client: c, Call: Call{Path: "/x"}, Observer: &got}
		stop := background.Run(f.Run)
		time.Sleep(10 * time.Minute)
		stop()
		if n := len(got.waits); n < 50 || n > 120 || slices.Max(got.waits) > 10*time.Second || slices.Min(got.waits) < 500*time.Millisecond {
			t.Errorf("%d waits: %v", n, got.waits)
		}
	})
}
