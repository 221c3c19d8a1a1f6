package access

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/typed/authorization/v1/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

// newClient has this group alone: the fakes of all groups are compiled for a minute.
func newClient() *fake.FakeAuthorizationV1 {
	return &fake.FakeAuthorizationV1{Fake: &clienttesting.Fake{}}
}

func TestReviewAsksForListSecretsInNamespace(t *testing.T) {
	client := newClient()
	var asked authorizationv1.SubjectAccessReviewSpec
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		asked = review.Spec
		review.Status.Allowed = true
		return true, review, nil
	})
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Config{Reviews: func(cluster string) (Reviews, bool) {
			return client.SubjectAccessReviews(), cluster == "east"
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if err := settled(a, web); err != nil {
			t.Error(err)
		}
	})
	want := authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:shop:web",
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "list", Version: "v1", Resource: "secrets"},
	}
	if !reflect.DeepEqual(asked, want) {
		t.Errorf("asked %+v", asked)
	}
}

func TestAnswerIsCachedUntilItExpires(t *testing.T) {
	for name, test := range map[string]struct {
		allowed bool
		keep    time.Duration
		want    error
	}{
		"yes": {true, 5 * time.Minute, nil},
		"no":  {false, time.Minute, ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			f := newAPI()
			f.allow[web] = test.allowed
			inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
				if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) {
					t.Errorf("before it was asked: %v", err)
				}
				synctest.Wait()
				for _, after := range []time.Duration{0, test.keep - 1} {
					pass(after)
					if err := a.Peek(web, tls); !errors.Is(err, test.want) || f.times() != 1 {
						t.Errorf("after %s: %v, asked %d times", after, err, f.times())
					}
				}
				pass(1)
				if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) {
					t.Errorf("after its end: %v", err)
				}
				synctest.Wait()
				if f.times() != 2 {
					t.Errorf("asked %d times", f.times())
				}
			})
		})
	}
}

func TestAllowedAndDeniedIsDenied(t *testing.T) {
	client := newClient()
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}}, nil
	})
	synctest.Test(t, func(t *testing.T) {
		a, _ := New(Config{Reviews: func(string) (Reviews, bool) { return client.SubjectAccessReviews(), true }})
		defer a.Close()
		if err := settled(a, web); !errors.Is(err, ErrDenied) {
			t.Error(err)
		}
	})
}

func TestSubjectWithoutAccountOrClusterIsNotReviewed(t *testing.T) {
	f := newAPI()
	f.gone["north"] = true
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		for _, s := range []Subject{{}, {"", "shop", "web"}, {"east", "", "web"}, {"east", "shop", ""}, {"north", "shop", "web"}} {
			if err := a.Peek(s, tls); !errors.Is(err, ErrDenied) {
				t.Errorf("%+v: %v", s, err)
			}
		}
		synctest.Wait()
		if f.times() != 0 || a.Counts().Known != 0 {
			t.Errorf("asked %v, known %d", f.asked, a.Counts().Known)
		}
	})
}

func TestConcurrentCallersShareOneReview(t *testing.T) {
	f := newAPI(web)
	f.slow = time.Second
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		for range 100 {
			if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) {
				t.Error(err)
			}
			pass(time.Millisecond)
		}
		pass(time.Second)
		if err := a.Peek(web, tls); err != nil || f.times() != 1 || told.Load() != 1 {
			t.Errorf("%v, asked %d times, told %d times", err, f.times(), told.Load())
		}
	})
}

func TestHangingAPIServerDelaysNoOther(t *testing.T) {
	f := newAPI(web)
	f.hang = true
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		for i := range 100 {
			_ = a.Peek(Subject{"east", "shop", fmt.Sprint("web-", i)}, tls)
		}
		synctest.Wait()
		west := Subject{"west", "shop", "web"}
		f.set(func() { f.hang = false; f.allow[west] = true })
		if err := settled(a, west); err != nil {
			t.Errorf("in another cluster: %v", err)
		}
		f.set(func() { f.hang = true })
		pass(10 * time.Second)
		if n := a.Counts().Failed; n != 16 || f.mostOf("east") != 16 {
			t.Errorf("%d have failed after the first deadline, %d were asked for at once", n, f.mostOf("east"))
		}
		pass(time.Minute)
		if n := a.Counts().Failed; n != 100 {
			t.Errorf("%d have failed after 70 s", n)
		}
	})
}

// Three thousand at once were denied for a minute, two thirds of them.
func TestFullQueueIsNotADenial(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	const all = 3000
	f := newAPI()
	f.slow = 320 * time.Millisecond // 50 a second
	for i := range all {
		f.allow[Subject{"east", "shop", fmt.Sprint("web-", i)}] = true
	}
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		var told ear
		for i := range all {
			s := Subject{"east", "shop", fmt.Sprint("web-", i)}
			defer a.Watch(s, told.notify)()
			if err := a.Peek(s, tls); !errors.Is(err, ErrNotReady) {
				t.Fatal(err)
			}
		}
		for range 65 {
			pass(time.Second)
			for i := range all {
				if err := a.Peek(Subject{"east", "shop", fmt.Sprint("web-", i)}, tls); errors.Is(err, ErrDenied) {
					t.Fatalf("%d is denied", i)
				}
			}
		}
		if c := a.Counts(); c.Allowed != all || c.Failed != 0 || told.Load() < all {
			t.Errorf("%+v, told %d times", c, told.Load())
		}
	})
}

func TestParallelLimitStillReviewsAll(t *testing.T) {
	f := newAPI()
	f.slow = 100 * time.Millisecond
	inBubble(t, f, Config{Parallel: 4}, func(t *testing.T, a *Access) {
		for i := range 100 {
			_ = a.Peek(Subject{"east", "shop", fmt.Sprint("web-", i)}, tls)
		}
		pass(3 * time.Second)
		if c := a.Counts(); c.Denied != 100 || c.Failed != 0 || f.mostOf("east") != 4 {
			t.Errorf("%+v, %d at once", c, f.mostOf("east"))
		}
	})
}

func TestKnownSubjectsAreBoundedPerCluster(t *testing.T) {
	f := newAPI()
	inBubble(t, f, Config{Most: 10}, func(t *testing.T, a *Access) {
		for i := range 8 {
			_, stop := watched(a, Subject{"east", "watched", fmt.Sprint("web-", i)})
			defer stop()
		}
		for i := range 30 {
			if err := settled(a, Subject{"east", "shop", fmt.Sprint("web-", i)}); !errors.Is(err, ErrDenied) || errors.Is(err, ErrFull) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if n := a.Counts().Known; n != 10 {
			t.Errorf("%d are known", n)
		}
		for i := range 2 {
			_, stop := watched(a, Subject{"east", "more", fmt.Sprint("web-", i)})
			defer stop()
		}
		if err := a.Peek(web, tls); !errors.Is(err, ErrFull) || !errors.Is(err, ErrNotReady) {
			t.Errorf("one more: %v", err)
		}
		if err := settled(a, Subject{"west", "shop", "web"}); !errors.Is(err, ErrDenied) {
			t.Errorf("in another cluster: %v", err)
		}
	})
}

func TestFullCacheNotifiesWhenRoomIsFree(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{Most: 2}, func(t *testing.T, a *Access) {
		_, leave := watched(a, Subject{"east", "shop", "one"})
		_, stay := watched(a, Subject{"east", "shop", "two"})
		defer stay()
		told, stop := watched(a, web)
		_, stopNone := watched(a, Subject{"east", "shop", "three"})
		stopNone()
		if err := settled(a, web); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		leave()
		synctest.Wait()
		if err := a.Peek(web, tls); err != nil || told.Load() != 1 {
			t.Errorf("%v, told %d times", err, told.Load())
		}
		f.allows(web, false)
		pass(5 * time.Minute)
		if told.Load() != 2 {
			t.Errorf("notified %d times, so it is not watched", told.Load())
		}
		stop()
	})
}

func TestClockJumpExtendsNoAnswer(t *testing.T) {
	for _, by := range []time.Duration{-time.Second, -time.Hour, 5 * time.Minute, time.Hour} {
		var c shiftedClock
		f := newAPI(web)
		inBubble(t, f, Config{Now: c.now}, func(t *testing.T, a *Access) {
			if err := settled(a, web); err != nil {
				t.Fatal(err)
			}
			c.jump(by)
			f.allows(web, false)
			if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) {
				t.Errorf("after a jump by %s: %v", by, err)
			}
			if err := settled(a, web); !errors.Is(err, ErrDenied) {
				t.Errorf("then: %v", err)
			}
		})
	}
}

func TestClockJumpIsNoticedWhileIdle(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		var c shiftedClock
		f := newAPI(web)
		inBubble(t, f, Config{Now: c.now}, func(t *testing.T, a *Access) {
			told, stop := watched(a, web)
			defer stop()
			_ = settled(a, web)
			before := told.Load()
			c.jump(by)
			f.allows(web, false)
			pass(30 * time.Second)
			if told.Load() != before+1 || !errors.Is(a.Peek(web, tls), ErrDenied) {
				t.Errorf("a jump by %s: told %d times, %v", by, told.Load()-before, a.Peek(web, tls))
			}
		})
	}
}

func TestUnreachableAPIServerIsLoggedOnceAMinute(t *testing.T) {
	f := newAPI()
	f.err = errors.New("dial tcp 10.0.0.1:6443: refused\n" + strings.Repeat("x", 1000))
	var log logtest.Log
	inBubble(t, f, Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, a *Access) {
		for i := range 20 {
			_ = settled(a, Subject{"east", "shop", fmt.Sprint("web-", i)})
		}
		pass(time.Minute)
		_ = settled(a, Subject{"east", "shop", "web-0"})
	})
	if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 2 || len(lines[0]) > 600 || !strings.Contains(lines[0], "cluster=east") {
		t.Errorf("logged:\n%s", log.String())
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for name, cfg := range map[string]Config{
		"nobody to ask":     {},
		"negative parallel": {Reviews: newAPI().reviews, Parallel: -1},
		"a yes of no time":  {Reviews: newAPI().reviews, Allow: time.Millisecond},
		"a no before now":   {Reviews: newAPI().reviews, Deny: -time.Second},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
