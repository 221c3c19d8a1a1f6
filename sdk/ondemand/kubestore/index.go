package kubestore

import (
	"context"
	"encoding/json"
	"net/url"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// view is what the last list and the changes since then have shown: a few bytes for each name.
type view struct {
	// follows holds one value while Index or Changes runs: the caller may have left a slow call.
	follows chan struct{}

	mu      sync.Mutex
	known   map[string]kept // by name
	round   uint32          // of the list that runs or ran last
	listing bool            // it runs: a copy may come before its record, or after
	version string          // where to go on
	changed func(e secret.Entry, deleted bool)
}

// kept is a record, and its copy. Times are in seconds since 1970; zero for none.
type kept struct {
	renew, ends, copied int64
	stored              bool   // there is a record
	round               uint32 // in which the record was seen
}

func (k kept) entry(name string) secret.Entry {
	e := secret.Entry{Name: name}
	if k.ends != 0 {
		e.Renew, e.Ends = time.Unix(k.renew, 0), time.Unix(k.ends, 0)
	}
	return e
}

func (v *view) enter(ctx context.Context) error {
	select {
	case v.follows <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (v *view) leave() { <-v.follows }

// unlike reports whether the copy of a record is missing, or is of another certificate.
func (k kept) unlike() bool { return k.stored && k.ends != k.copied }

// all are the metadata of all our Secrets.
func (s *Store) all() kubeapi.Call {
	return kubeapi.Call{Path: s.secrets(), Query: url.Values{"labelSelector": {managedBy + "=" + manager}}, MetadataOnly: true}
}

// Index implements ondemand.Storage: one list, of the metadata alone. It waits for a call of Changes
// that runs.
func (s *Store) Index(ctx context.Context) ([]secret.Entry, error) {
	if err := s.view.enter(ctx); err != nil {
		return nil, err
	}
	defer s.view.leave()
	o := observer{s}
	o.Begin()
	version, err := s.client.List(ctx, s.all(), func(object json.RawMessage) error {
		o.See(kubeapi.Event{Type: kubeapi.Added, Object: object})
		return nil
	})
	if err != nil {
		s.view.forget()
		return nil, unknown(err)
	}
	o.Complete()
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	s.view.version = version
	var index []secret.Entry
	for name, k := range s.view.known {
		if k.stored {
			index = append(index, k.entry(name))
		}
	}
	return index, nil
}

// Changes implements ondemand.SharedStorage: one watch, that goes on from the list of Index. It waits
// while the API server is away, and returns when ctx ends. It also keeps the copies, and deletes
// claims that processes have left.
func (s *Store) Changes(ctx context.Context, changed func(e secret.Entry, deleted bool)) error {
	if err := s.view.enter(ctx); err != nil {
		return err
	}
	defer s.view.leave()
	s.view.mu.Lock()
	s.view.changed = changed
	follower := kubeapi.Follower{Client: s.client, Call: s.all(), Observer: observer{s}, Version: s.view.version}
	s.view.mu.Unlock()
	var aside sync.WaitGroup
	defer aside.Wait()
	aside.Go(func() { s.sweep(ctx) })
	if s.cfg.TLSSecrets {
		aside.Go(func() { s.keepCopies(ctx) })
	}
	follower.Run(ctx)
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	s.view.changed, s.view.version = nil, follower.Version
	return context.Cause(ctx)
}

// observer takes what a list and a watch show into the view.
type observer struct{ *Store }

// Begin implements [kubeapi.Observer].
func (o observer) Begin() {
	o.view.mu.Lock()
	defer o.view.mu.Unlock()
	o.view.round++
	o.view.listing = true
	for name, k := range o.view.known {
		k.copied = 0
		o.view.known[name] = k
	}
}

// See implements [kubeapi.Observer].
func (o observer) See(e kubeapi.Event) {
	if e.Type == kubeapi.Bookmark {
		return
	}
	var seen struct {
		Metadata metadata `json:"metadata"`
	}
	if json.Unmarshal(e.Object, &seen) != nil {
		o.damaged.Add(1)
		return
	}
	kind := seen.Metadata.Labels[kindLabel]
	entry, err := entryOf(seen.Metadata)
	if kind == kindCopy {
		entry, err = copyEntry(seen.Metadata)
	} else if kind != kindRecord {
		return
	}
	if err != nil {
		o.damaged.Add(1)
		o.log.Warn("a Secret of the store was changed by another client and is left as it is", "object", seen.Metadata.Name, "error", err)
		return
	}
	o.take(entry, kind, e.Type == kubeapi.Deleted)
	if kind == kindCopy && e.Type == kubeapi.Modified {
		o.checkCopy(entry.Name)
	}
}

func (o observer) take(e secret.Entry, kind string, deleted bool) {
	v := &o.view
	v.mu.Lock()
	before := v.known[e.Name]
	now := before
	switch {
	case kind == kindCopy && deleted:
		now.copied = 0
	case kind == kindCopy:
		now.copied = unix(e.Ends)
	default:
		now.stored, now.renew, now.ends, now.round = !deleted, 0, 0, v.round
		if !deleted {
			now.renew, now.ends = unix(e.Renew), unix(e.Ends)
		}
	}
	v.set(e.Name, now)
	report := v.reports(before, now)
	unlike := now.unlike() && !v.listing
	v.mu.Unlock()
	if report != nil {
		report(now.entry(e.Name), !now.stored)
	}
	if unlike {
		o.checkCopy(e.Name)
	}
}

func (o observer) checkCopy(name string) {
	if o.cfg.TLSSecrets {
		o.copies.add(name, later)
	}
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// set replaces what is known of a name.
func (v *view) set(name string, now kept) {
	if !now.stored && now.copied == 0 {
		delete(v.known, name)
		return
	}
	v.known[name] = now
}

// reports returns the function that takes a change, or nil if the record is as before.
func (v *view) reports(before, now kept) func(secret.Entry, bool) {
	same := before.stored == now.stored && before.renew == now.renew && before.ends == now.ends
	if same {
		return nil
	}
	return v.changed
}

// forget has Changes report each record.
func (v *view) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known, v.version = map[string]kept{}, ""
}

// Complete implements [kubeapi.Observer]: what was not listed is gone.
func (o observer) Complete() {
	v := &o.view
	v.mu.Lock()
	v.listing = false
	var gone, unlike []string
	for name, k := range v.known {
		if k.stored && k.round != v.round {
			gone = append(gone, name)
			k = kept{copied: k.copied}
		}
		if v.set(name, k); k.unlike() && o.cfg.TLSSecrets {
			unlike = append(unlike, name)
		}
	}
	changed := v.changed
	v.mu.Unlock()
	for _, name := range gone {
		if changed != nil {
			changed(secret.Entry{Name: name}, true)
		}
	}
	for _, name := range unlike {
		o.checkCopy(name)
	}
}

// Away implements [kubeapi.Observer].
func (o observer) Away(err error, wait time.Duration) {
	o.log.Warn("cannot follow the certificates in the API server: what is held is served", "error", err, "again_in", wait.Round(time.Second))
}
