package fleet

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// watched describes what one informer holds.
type watched struct {
	resource  string // as in the API path
	namespace string // "" means all
	example   runtime.Object
	choose    func(*metav1.ListOptions)
	trim      func(runtime.Object) held // returns nil for anything else
	handler   cache.ResourceEventHandler
}

// informer returns an informer that reports the outcome of each list and watch to health.
func (c *connection) informer(w watched, h *health) (cache.SharedIndexInformer, error) {
	way := cache.NewFilteredListWatchFromClient(c.client.CoreV1().RESTClient(), w.resource, w.namespace, w.choose)
	from := &source{watched: w, way: way, health: h, ledger: c.budget.ledger()}
	informer := cache.NewSharedIndexInformerWithOptions(
		&cache.ListWatch{ListWithContextFunc: from.list, WatchFuncWithContext: from.watch}, w.example, cache.SharedIndexInformerOptions{},
	)
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { h.note(w.resource, err) })
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(w.handler)
	return informer, err
}

// endWithin is how long informers may take to end. The pause that client-go makes after it could
// not connect, of up to 45 s, ignores its context.
const endWithin = 2 * time.Second

// run runs informers until ctx ends. It discards client-go's log: health has the
// errors.
func run(ctx context.Context, informers ...cache.SharedIndexInformer) {
	ctx = klog.NewContext(ctx, klog.Logger{})
	var wg sync.WaitGroup
	for _, informer := range informers {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	<-ctx.Done()
	late, ended := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	go func() {
		wg.Wait()
		ended()
	}()
	<-late.Done()
}

// waitSynced returns false if ctx ends first.
func waitSynced(ctx context.Context, informers ...cache.SharedIndexInformer) bool {
	for _, informer := range informers {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// health says why a cluster is not followed, by resource.
type health struct {
	clean func(error) string
	log   *slog.Logger

	mu     sync.Mutex
	faults map[string]string
	began  time.Time // of the first of them
}

func newHealth(clean func(error) string, log *slog.Logger) *health {
	return &health{clean: clean, log: log, faults: map[string]string{}}
}

// note records the outcome of a list or a watch. It logs the first fault and the end of
// the last; those between at debug level.
func (h *health) note(resource string, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, errGone) || errors.As(err, new(*excess)) {
		return // we have ended it, or the fleet will
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, was := len(h.faults), h.faults[resource]
	if err == nil {
		delete(h.faults, resource)
	} else {
		h.faults[resource] = resource + ": " + h.clean(err)
	}
	switch after := len(h.faults); {
	case before == 0 && after > 0:
		h.began = time.Now()
		h.log.Warn("cluster watch interrupted, keeping its last known state", "error", h.faults[resource])
	case before > 0 && after == 0:
		h.began = time.Time{}
		h.log.Info("cluster watch resumed")
	case h.faults[resource] != was:
		h.log.Debug("cluster watch still interrupted, for a different reason", "error", h.all())
	}
}

// fault returns an empty string if all is well.
func (h *health) fault() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all()
}

// since returns when the faults began, zero if all is well.
func (h *health) since() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.began
}

// all requires the lock to be held.
func (h *health) all() string { return strings.Join(slices.Sorted(maps.Values(h.faults)), "; ") }
