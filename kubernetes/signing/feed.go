package signing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/countersign-dev/countersign/internal/text"
)

// Feed returns an informer's handler that keeps in w the objects that are open, and drops those
// that are finished or deleted. Work is shared fairly between their owners.
func Feed[T metav1.Object](w *Work[T], open func(T) bool, owner func(T) string) cache.ResourceEventHandler {
	look := func(object any) {
		o, ok := object.(T)
		switch {
		case !ok:
		case open(o):
			w.put(o.GetUID(), owner(o), o.GetCreationTimestamp().Time, Weight(o), o)
		default:
			w.Drop(o.GetUID())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: look,
		UpdateFunc: func(before, after any) {
			// Made anew under the same name while the watch was broken.
			b, known := before.(T)
			if a, ok := after.(T); known && ok && a.GetUID() != b.GetUID() {
				w.Drop(b.GetUID())
			}
			look(after)
		},
		DeleteFunc: func(object any) {
			if lost, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = lost.Obj
			}
			if o, ok := object.(T); ok {
				w.Drop(o.GetUID())
			}
		},
	}
}

// Latest makes an informer's first list current. Without streaming lists, client-go lists from the API
// server's cache, which may be minutes old: each request in it that the last leader has served since
// would cost another certificate, which could not be delivered.
func Latest(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

// endWithin is how long informers may take to end. The pause that client-go makes after it could
// not connect, of up to 45 s, ignores its context.
const endWithin = 2 * time.Second

// RunInformers runs informers until ctx ends. What keeps them from the API server goes to log,
// which should be bounded; what they know stays as it is meanwhile. client-go's own log is
// discarded.
func RunInformers(ctx context.Context, log *slog.Logger, informers ...cache.SharedIndexInformer) {
	quiet := klog.NewContext(ctx, klog.Logger{})
	var tasks sync.WaitGroup
	for _, informer := range informers {
		// It fails only for informers that run already.
		_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if !errors.Is(err, context.Canceled) {
				log.Warn("watch interrupted, keeping what is known", "error", text.Clean(err.Error()))
			}
		})
		tasks.Go(func() { informer.RunWithContext(quiet) })
	}
	<-ctx.Done()
	late, ended := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	go func() {
		tasks.Wait()
		ended()
	}()
	<-late.Done()
}
