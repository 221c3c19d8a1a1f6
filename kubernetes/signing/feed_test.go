package signing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
)

type csr = certificatesv1.CertificateSigningRequest

func named(uid string) *csr {
	return &csr{ObjectMeta: metav1.ObjectMeta{Name: "same", UID: types.UID(uid)}}
}

func finished(uid string) *csr {
	c := named(uid)
	c.Status.Certificate = []byte("x")
	return c
}

func TestFeedKeepsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []types.UID
		w := signing.NewWork(t.Context(), 10, func(ctx context.Context, c *csr) time.Duration {
			<-ctx.Done()
			ended = append(ended, c.UID)
			return 0
		})
		defer w.Close()
		feed := signing.Feed(w, func(c *csr) bool { return c.Status.Certificate == nil }, func(*csr) string { return "" })
		step := func(what string, known int, over ...types.UID) {
			t.Helper()
			synctest.Wait()
			if w.Len() != known || !slices.Equal(ended, over) {
				t.Errorf("%s: %d known, %q ended; want %d and %q", what, w.Len(), ended, known, over)
			}
			ended = nil
		}
		feed.OnAdd(named("1"), true)
		feed.OnAdd(finished("2"), true)
		feed.OnAdd("none", true)
		step("added", 1)
		feed.OnUpdate(named("1"), finished("1"))
		step("finished", 0, "1")
		feed.OnAdd(named("3"), false)
		step("added", 1)
		feed.OnUpdate(named("3"), named("4"))
		step("made anew under the same name", 1, "3")
		feed.OnDelete(cache.DeletedFinalStateUnknown{Key: "same", Obj: named("4")})
		feed.OnDelete("none")
		step("deleted", 0, "4")
	})
}

// The requests of one owner wait for each other, not for those of others.
func TestFeedSharesWorkBetweenOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan types.UID, 4)
		finish := make(chan struct{})
		w := signing.NewWork(t.Context(), 2, func(_ context.Context, c *csr) time.Duration {
			begun <- c.UID
			<-finish
			return signing.Over
		})
		defer w.Close()
		feed := signing.Feed(w, func(*csr) bool { return true }, func(c *csr) string { return c.Spec.Username })
		for i, user := range []string{"joe", "joe", "joe", "jane"} {
			c := named(fmt.Sprint(user, i))
			c.Spec.Username, c.CreationTimestamp = user, metav1.NewTime(time.Now().Add(time.Duration(i)*time.Second))
			feed.OnAdd(c, false)
			synctest.Wait()
		}
		finish <- struct{}{}
		synctest.Wait()
		<-begun
		<-begun
		if next := <-begun; next != "jane3" {
			t.Errorf("%s came before jane, and joe had his turns", next)
		}
		close(finish)
	})
}

func TestInformersEndThoughTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		away := errors.New("the API server is away")
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, away },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, away },
		}, &csr{}, 0, cache.Indexers{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		start := time.Now()
		signing.RunInformers(ctx, log.Logger(), informer)
		if took := time.Since(start); took > 10*time.Minute+3*time.Second {
			t.Errorf("ended after %s", took)
		}
		if !strings.Contains(log.String(), "away") {
			t.Errorf("log: %s", log.String())
		}
		time.Sleep(time.Minute) // client-go's pause
	})
}

// Large requests take the room of several: those of one owner leave as much for others as usual ones.
func TestLargeObjectsTakeTheRoomOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var large, small atomic.Int64
		w := signing.NewWork(t.Context(), 180, func(ctx context.Context, c *csr) time.Duration {
			map[string]*atomic.Int64{"large": &large, "small": &small}[c.Spec.Username].Add(1)
			<-ctx.Done()
			return 0
		})
		defer w.Close()
		feed := signing.Feed(w, func(*csr) bool { return true }, func(c *csr) string { return c.Spec.Username })
		put := func(owner string, n, size int) {
			c := &csr{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(owner, n))}}
			c.Spec.Username = owner
			signing.NoteSize(c, c, size)
			feed.OnAdd(c, false)
		}
		for n := range 100 {
			put("large", n, 1<<20)
		}
		synctest.Wait()
		if n := large.Load(); n != 10 {
			t.Errorf("%d are handled, want 10: with a weight of 9, they have half of the room", n)
		}
		for n := range 100 {
			put("small", n, 1000)
		}
		synctest.Wait()
		if n := small.Load(); n != 46 {
			t.Errorf("%d usual ones are handled, want half of what is left", n)
		}
	})
}

func TestWeightIsBounded(t *testing.T) {
	for size, want := range map[int]int{0: 1, 4095: 1, 4096: 2, 32 << 10: 9, 1 << 30: 9} {
		c := &csr{}
		if signing.NoteSize(c, c, size); signing.Weight(c) != want {
			t.Errorf("%d bytes weigh %d, want %d", size, signing.Weight(c), want)
		}
	}
}
