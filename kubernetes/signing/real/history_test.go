//go:build e2e && linux && long

package real_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// history is what became of all requests of namespace shop, those that are deleted included.
type history struct {
	t     testing.TB
	began time.Time

	mu    sync.Mutex
	lives []*life // in the order in which they were created
}

// life is that of one request.
type life struct {
	uid             types.UID
	pod, kind       string // kind of outcome; empty while it is pending
	issued, deleted time.Time
	chain           []byte
}

// watch begins a history, which misses no event until the test ends.
func (o *registrar) watch(t testing.TB) *history {
	t.Helper()
	h := &history{t: t, began: time.Now()}
	requests := o.Client().CertificatesV1().PodCertificateRequests("shop")
	none, err := requests.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	// The API server ends each watch within the hour.
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return requests.Watch(ctx, o)
	}}
	inBackground(t, func(ctx context.Context) {
		events, err := watchtools.NewRetryWatcherWithContext(ctx, none.ResourceVersion, source)
		if err != nil {
			t.Error(err)
			return
		}
		for e := range events.ResultChan() {
			h.take(e)
		}
		if ctx.Err() == nil {
			t.Error("the history ended early")
		}
	})
	return h
}

func (h *history) take(e watch.Event) {
	r, ok := e.Object.(*certificatesv1.PodCertificateRequest)
	if !ok {
		h.t.Errorf("%s: %v", e.Type, e.Object)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.lives, func(l *life) bool { return l.uid == r.UID })
	if i < 0 {
		i, h.lives = len(h.lives), append(h.lives, &life{uid: r.UID, pod: r.Spec.PodName})
		h.say(r, "is created")
	}
	l := h.lives[i]
	if kind, c := outcome(r); kind != l.kind {
		if l.kind != "" || kind != issued {
			h.t.Errorf("request %s of pod %s was %q and is %q: %s: %s", r.Name, l.pod, l.kind, kind, c.Reason, c.Message)
		}
		l.kind, l.issued, l.chain = kind, time.Now(), []byte(r.Status.CertificateChain)
		h.say(r, "is "+kind)
		if kind == issued {
			h.t.Logf("  from %s to %s, refresh from %s", r.Status.NotBefore, r.Status.NotAfter, r.Status.BeginRefreshAt)
		}
	}
	if e.Type == watch.Deleted {
		l.deleted = time.Now()
		h.say(r, "is deleted")
	}
}

func (h *history) say(r *certificatesv1.PodCertificateRequest, what string) {
	h.t.Logf("%8s: request %s of pod %s %s", h.passed(), r.Name, r.Spec.PodName, what)
}

// passed is the time since the beginning.
func (h *history) passed() time.Duration { return time.Since(h.began).Round(time.Second) }

// of returns the requests of a pod.
func (h *history) of(pod string) []life {
	return slices.DeleteFunc(h.all(), func(l life) bool { return l.pod != pod })
}

func (h *history) all() (lives []life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lives {
		lives = append(lives, *l)
	}
	return lives
}
