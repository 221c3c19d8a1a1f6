package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// listTimeout ends a list that a server does not finish.
	listTimeout = 5 * time.Minute
	pageTimeout = time.Minute
	pageSize    = 500
)

// source supplies an informer with objects, trimmed and counted before they are stored.
type source struct {
	watched
	way    *cache.ListWatch
	health *health
	ledger *ledger
}

// list always fetches page by page: client-go would request everything at once, or keep
// all raw pages until the last one.
func (s *source) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	all, err := s.pages(ctx)
	s.health.note(s.resource, err)
	if errors.As(err, new(*excess)) {
		s.ledger.budget.exceed(err)
	}
	return all, err
}

func (s *source) pages(ctx context.Context) (*metav1.List, error) {
	all := &metav1.List{}
	s.ledger.clear()
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := s.page(ctx, options)
		if errors.As(err, new(*excess)) && options.Limit > 1 {
			options.Limit /= 2
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := s.keep(all, page); err != nil {
			return nil, err
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if options.Continue == "" { // the first page has the version of the whole list
			all.ResourceVersion = about.GetResourceVersion()
		}
		if options.Continue = about.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

func (s *source) page(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return s.way.ListWithContextFunc(ctx, options)
}

func (s *source) keep(all *metav1.List, page runtime.Object) error {
	return meta.EachListItem(page, func(object runtime.Object) error {
		trimmed := s.trim(object)
		if trimmed == nil {
			return fmt.Errorf("API server listed a %T", object)
		}
		all.Items = append(all.Items, runtime.RawExtension{Object: trimmed})
		return s.ledger.put(trimmed)
	})
}

func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := s.way.WatchFuncWithContext(ctx, options)
	s.health.note(s.resource, err)
	if err != nil {
		return nil, err
	}
	if options.SendInitialEvents != nil && *options.SendInitialEvents { // it is a list, too
		s.ledger.clear()
	}
	f := &followed{Interface: events, events: make(chan watch.Event), stopped: make(chan struct{})}
	go f.run(s)
	return f, nil
}

// take returns the event to pass on; one of another kind passes unchanged, and the
// informer ignores it. The error is an [excess].
func (s *source) take(event watch.Event) (watch.Event, error) {
	trimmed := s.trim(event.Object)
	if trimmed == nil || event.Type == watch.Bookmark {
		return event, nil
	}
	event.Object = trimmed
	if event.Type == watch.Deleted {
		s.ledger.drop(trimmed)
		return event, nil
	}
	return event, s.ledger.put(trimmed)
}

// followed is a watch whose objects are trimmed and counted.
type followed struct {
	watch.Interface // client-go's watch
	events          chan watch.Event
	stopped         chan struct{}
	stop            sync.Once
}

// ResultChan implements [watch.Interface].
func (f *followed) ResultChan() <-chan watch.Event { return f.events }

// Stop implements [watch.Interface].
func (f *followed) Stop() {
	f.stop.Do(func() { close(f.stopped) })
	f.Interface.Stop()
}

func (f *followed) run(s *source) {
	defer close(f.events)
	defer f.Interface.Stop()
	for event := range f.Interface.ResultChan() {
		event, err := s.take(event)
		if err != nil {
			s.ledger.budget.exceed(err)
			return
		}
		select {
		case f.events <- event:
		case <-f.stopped:
			return
		}
	}
}
