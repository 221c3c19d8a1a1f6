package kubeca

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestEachAnswerHasItsReason(t *testing.T) {
	c := newCluster(t)
	with := open(t, c.direct())
	req, _ := testkit.Request(t, web)
	said := `{"kind":"Status","message":"no ` + ourToken.Reveal() + `","details":{"retryAfterSeconds":7}}`
	for _, one := range []struct {
		status       int
		header, body string
		want         *ca.Error
		after        time.Duration
	}{
		{400, "", said, ca.ErrInvalid, 7 * time.Second},
		{401, "", said, ca.ErrUnauthenticated, 7 * time.Second},
		{403, "", said, ca.ErrDenied, 7 * time.Second},
		{403, "", `{"message":"forbidden: exceeded quota: requests"}`, ca.ErrRateLimited, 0},
		{404, "", said, ca.ErrUnavailable, 7 * time.Second},
		{410, "", "", ca.ErrUnavailable, 0},
		{400, "", "<html>", ca.ErrUnavailable, 0},
		{405, "", "no such method", ca.ErrUnavailable, 0},
		{422, "", said, ca.ErrInvalid, 7 * time.Second},
		{429, "3", said, ca.ErrRateLimited, 3 * time.Second},
		{429, "", `{"details":{"retryAfterSeconds":-5}}`, ca.ErrRateLimited, 0},
		{429, "", `{"details":{"retryAfterSeconds":9000000000000}}`, ca.ErrRateLimited, 24 * time.Hour},
		{500, "", "<html>" + ourToken.Reveal(), ca.ErrInternal, 0},
		{503, "9", "", ca.ErrUnavailable, 9 * time.Second},
		{302, "", "", ca.ErrInvalid, 0},
		{201, "", "hello " + ourToken.Reveal(), ca.ErrInternal, 0},
		{201, "", `{}`, ca.ErrAborted, 0},
		{201, "", strings.Repeat(" ", 4<<20+1), ca.ErrInternal, 0},
	} {
		c.answers(http.MethodPost, one.status, one.header, one.body)
		err := fails(t, with, req, one.want)
		if got := ca.RetryAfter(err); got != one.after {
			t.Errorf("%d: after %s, want %s", one.status, got, one.after)
		}
	}
}

func TestAnswersWhileItWaits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for status, want := range map[int]*ca.Error{http.StatusForbidden: ca.ErrDenied, http.StatusUnauthorized: ca.ErrUnauthenticated, http.StatusNotFound: ca.ErrUnavailable} {
		c := newCluster(t)
		c.decide, c.watches = nil, func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, http.StatusForbidden, "no"); return false }
		c.answers(http.MethodGet, status, "", `{"message":"not now"}`)
		req, _ := testkit.Request(t, web)
		fails(t, open(t, c.direct()), req, want)
	}
	c := newCluster(t)
	var away sync.Once
	c.watches = func(w http.ResponseWriter, _ *http.Request) bool {
		away.Do(func() { c.answers(http.MethodGet, http.StatusServiceUnavailable, "", "") })
		refuse(w, http.StatusForbidden, "no")
		return false
	}
	go func() { // a server that is away for a moment fails nothing
		for count(c, "GET") == 0 {
			time.Sleep(time.Millisecond)
		}
		c.set(func() { c.answer = nil })
	}()
	sign(t, c, open(t, c.direct()))
}
