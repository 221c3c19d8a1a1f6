package access

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// holding has web watched and its secret held.
func holding(t *testing.T, a *Access) (told *ear, stop func()) {
	t.Helper()
	told, stop = watched(a, web)
	if err := settled(a, web); err != nil {
		t.Fatal(err)
	}
	a.Hold(web, held)
	return told, stop
}

// awayUntil demands that nothing is given and nothing taken, each second of that time.
func awayUntil(t *testing.T, a *Access, d time.Duration) {
	t.Helper()
	for range d / time.Second {
		pass(time.Second)
		if err := a.Peek(web, held); err != nil {
			t.Fatalf("what is held: %v", err)
		}
	}
	if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) {
		t.Fatalf("what was never served: %v", err)
	}
	if err := settled(a, Subject{"east", "shop", "new"}); !errors.Is(err, ErrNotReady) {
		t.Fatalf("somebody new: %v", err)
	}
}

// Any error of the API server is "cannot tell", our own lack of rights there too.
func TestAPIServerErrorGrantsAndRevokesNothing(t *testing.T) {
	for name, away := range map[string]func(*api){
		"away":          func(f *api) { f.err = errDown },
		"hangs":         func(f *api) { f.hang = true },
		"not connected": func(f *api) { f.off["east"] = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := newAPI(web)
			inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
				told, stop := holding(t, a)
				defer stop()
				f.set(func() { away(f) })
				awayUntil(t, a, 5*time.Minute+20*time.Second)
				awayUntil(t, a, 50*time.Minute)
				before := told.Load()
				f.set(func() { f.err, f.hang, f.off["east"] = nil, false, false })
				pass(time.Minute + 10*time.Second)
				if err := a.Peek(web, tls); err != nil || told.Load() == before {
					t.Errorf("when it is back: %v, told %d times more", err, told.Load()-before)
				}
			})
		})
	}
}

func TestReconnectDuringOutageKeepsGrant(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		_, stop := holding(t, a)
		f.fails(errDown)
		pass(4 * time.Minute)
		stop()
		pass(10 * time.Minute)
		told, stop := watched(a, web)
		defer stop()
		if err := a.Peek(web, held); err != nil && !errors.Is(err, ErrNotReady) {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := a.Peek(web, held); err != nil {
			t.Errorf("%v, told %d times", err, told.Load())
		}
	})
}

// Otherwise one whose right was taken away would have the next key by connecting again.
func TestReconnectingCallerIsReviewedFirst(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		_, stop := holding(t, a)
		stop()
		f.allows(web, false)
		pass(6 * time.Minute)
		if err := a.Peek(web, held); !errors.Is(err, ErrNotReady) {
			t.Errorf("before it is asked: %v", err)
		}
		synctest.Wait()
		f.fails(errDown)
		pass(2 * time.Minute)
		if err := settled(a, web); !errors.Is(err, ErrNotReady) {
			t.Errorf("after a no: %v", err)
		}
		if err := a.Peek(web, held); err == nil {
			t.Error("what was held before the no is held again")
		}
	})
}

func TestLongOutageDenies(t *testing.T) {
	for name, test := range map[string]struct {
		outage, keeps time.Duration
	}{
		"by default": {0, time.Hour},
		"as said":    {20 * time.Minute, 20 * time.Minute},
		"not at all": {-1, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := newAPI(web)
			inBubble(t, f, Config{Outage: test.outage}, func(t *testing.T, a *Access) {
				told, stop := holding(t, a)
				defer stop()
				f.fails(errDown)
				pass(test.keeps - 1)
				if err := a.Peek(web, held); err != nil {
					t.Errorf("before the end: %v", err)
				}
				before := told.Load()
				pass(lookEvery + 1)
				if err := a.Peek(web, held); !errors.Is(err, ErrDenied) || told.Load() != before+1 {
					t.Errorf("then: %v, told %d times more", err, told.Load()-before)
				}
				f.fails(nil)
				pass(time.Minute)
				if err := a.Peek(web, held); err != nil {
					t.Errorf("when it is back: %v", err)
				}
			})
		})
	}
}

func TestRepeatedSwapsDoNotExtendOutage(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		_, stop := holding(t, a)
		defer stop()
		f.fails(errDown)
		for range 61 {
			a.Forget("east")
			pass(time.Minute)
		}
		if err := a.Peek(web, held); !errors.Is(err, ErrDenied) {
			t.Error(err)
		}
	})
}

// A webhook that could not be asked has said neither.
func TestEvaluationErrorIsNotADenial(t *testing.T) {
	var status authorizationv1.SubjectAccessReviewStatus
	synctest.Test(t, func(t *testing.T) {
		a, _ := New(Config{Reviews: func(string) (Reviews, bool) { return fixed{&status}, true }})
		defer a.Close()
		status.EvaluationError = "webhook: connection refused"
		if err := settled(a, web); !errors.Is(err, ErrNotReady) || a.Counts().Unsure != 1 {
			t.Errorf("%v, %+v", err, a.Counts())
		}
		other := Subject{"east", "shop", "other"}
		status.Denied = true
		if err := settled(a, other); !errors.Is(err, ErrDenied) {
			t.Errorf("a no beside it: %v", err)
		}
	})
}

type fixed struct {
	status *authorizationv1.SubjectAccessReviewStatus
}

func (f fixed) Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	return &authorizationv1.SubjectAccessReview{Status: *f.status}, nil
}

func TestHeldNamesAreBoundedPerCluster(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{Most: 2}, func(t *testing.T, a *Access) {
		_, stop := holding(t, a)
		defer stop()
		for i := range 100 {
			a.Hold(web, fmt.Sprint("kubernetes://", i))
			a.Hold(Subject{"east", "shop", "unknown"}, held)
		}
		a.mu.Lock()
		d := a.desks["east"]
		if n := len(d.entries[web].held); n != 2*maxNames || d.names != n || len(d.entries) != 1 {
			t.Errorf("%d names are held, counted as %d, of %d accounts", n, d.names, len(d.entries))
		}
		a.mu.Unlock()
		f.allows(web, false)
		pass(5 * time.Minute)
		if d.names != 0 {
			t.Errorf("%d names are counted after a no", d.names)
		}
	})
}
