package signing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// MaxHandled is how many requests of the usual size may be worked on at once. It is more than an
// authority's queue has places, so that the engine decides whose turn it is.
const MaxHandled = 20000

// Follower works on the requests for some signers, term after term. Its fields are set before it is
// used; its methods are safe for concurrent use.
type Follower[T metav1.Object] struct {
	// What the requests are called in errors, in the plural.
	What    string
	Signers []string
	// Informer makes a new informer of the requests for a signer.
	Informer func(signer string) cache.SharedIndexInformer
	// Open reports whether a request needs work. Owner returns the owner whose requests take turns
	// with those of others ([Work]).
	Open  func(T) bool
	Owner func(T) string
	// Handle works on a request; see [NewWork].
	Handle func(context.Context, T) time.Duration
	// Log should be bounded.
	Log *slog.Logger

	mu     sync.Mutex
	synced []cache.DoneChecker // of the informers that run; nil: none do
}

// Run works until ctx ends and all is quiet. It may be called again then, but not twice at once.
func (f *Follower[T]) Run(ctx context.Context) {
	work := NewWork(ctx, MaxHandled, f.Handle)
	defer work.Close()
	feed := Feed(work, f.Open, f.Owner)
	var follow []cache.SharedIndexInformer
	var synced []cache.DoneChecker
	for _, signer := range f.Signers {
		informer := f.Informer(signer)
		registration, err := informer.AddEventHandler(feed)
		if err != nil { // only of an informer that has ended
			f.Log.Error("cannot follow "+f.What, "signer", signer, "error", err)
			return
		}
		follow, synced = append(follow, informer), append(synced, registration.HasSyncedChecker())
	}
	f.setSynced(synced)
	defer f.setSynced(nil)
	RunInformers(ctx, f.Log, follow...)
}

func (f *Follower[T]) setSynced(checkers []cache.DoneChecker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = checkers
}

// Ready returns nil while Run runs and has seen all requests that there were when it began.
func (f *Follower[T]) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.synced == nil {
		return fmt.Errorf("%s are not followed", f.What)
	}
	for _, checker := range f.synced {
		select {
		case <-checker.Done():
		default:
			return fmt.Errorf("%s are still being listed", f.What)
		}
	}
	return nil
}
