package tokenreview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// silent is an API server that holds made-up tokens until the request ends, and rejects
// the others at once.
type silent struct{ asked chan string }

func (s silent) RoundTrip(req *http.Request) (*http.Response, error) {
	content, _ := io.ReadAll(req.Body)
	s.asked <- string(content)
	if strings.Contains(string(content), "made-up") {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	const no = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{}}`
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(no)), Request: req}, nil
}

func silentReviewer(t *testing.T) (*Reviewer, silent) {
	t.Helper()
	s := silent{make(chan string, 1000)}
	return reviewer(t, Config{URL: "https://10.0.0.1", Audiences: []string{"istio-ca"}, Transport: s}), s
}

func TestReviewsPerPeerAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, api := silentReviewer(t)
		for i := range 100 {
			go r.Authenticate(t.Context(), authn.Credential{Token: ca.Token(fmt.Sprint("made-up-", i)), Peer: "192.0.2.1"})
		}
		synctest.Wait()
		if n := len(api.asked); n != defaultOfPeer {
			t.Errorf("%d reviews of one peer are in progress", n)
		}
		began := time.Now()
		_, err := r.Authenticate(t.Context(), authn.Credential{Token: "honest", Peer: "192.0.2.2"})
		if !errors.Is(err, authn.ErrRefused) || time.Since(began) > 0 {
			t.Errorf("another peer has its answer after %s: %v", time.Since(began), err)
		}
		time.Sleep(askTimeout)
	})
}

func TestDepartedCallersLeaveNoReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, api := silentReviewer(t)
		for i := range 500 {
			ctx, leave := context.WithCancel(t.Context())
			go r.Authenticate(ctx, authn.Credential{Token: ca.Token(fmt.Sprint("made-up-", i)), Peer: "192.0.2.1"})
			synctest.Wait()
			leave()
			synctest.Wait()
		}
		r.mu.Lock()
		if n := len(r.flights); n != defaultOfPeer {
			t.Errorf("%d reviews wait or are in progress", n)
		}
		r.mu.Unlock()
		if n := len(api.asked); n != defaultOfPeer {
			t.Errorf("the API server has %d reviews", n)
		}
		time.Sleep(askTimeout)
	})
}

func TestFreedSlotGoesToPeerWithFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slots{most: 3, ofPeer: 2, by: map[string]int{}}
		var served []string
		take := func(ctx context.Context, peer string) (free func()) {
			turn := make(chan func(), 1)
			go func() {
				if free, ok := s.take(ctx, peer); ok {
					served = append(served, peer)
					turn <- free
				}
			}()
			synctest.Wait()
			return func() { (<-turn)(); synctest.Wait() }
		}
		gone, leave := context.WithCancel(t.Context())
		first := take(t.Context(), "a")
		second := take(t.Context(), "a")
		third := take(t.Context(), "a") // over its share, though a slot is free
		fourth := take(t.Context(), "b")
		take(gone, "d")
		fifth := take(t.Context(), "c")
		leave()
		synctest.Wait()
		first() // c has none, a has one
		if got := strings.Join(served, ""); got != "aabc" {
			t.Errorf("served are %s", got)
		}
		for _, free := range []func(){second, third, fourth, fifth} {
			free()
		}
		if got := strings.Join(served, ""); got != "aabca" || s.used != 0 || len(s.by)+len(s.waiting) != 0 {
			t.Errorf("served are %s; %d slots are used, by %v, %d wait", got, s.used, s.by, len(s.waiting))
		}
	})
}
