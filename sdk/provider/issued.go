package provider

import (
	"sync"
	"time"
)

const (
	issuedLife = 10 * time.Minute
	maxIssued  = 1024
)

// Issued remembers what an authority issued, for one that makes another certificate of each
// repeat: a repeat of a request (the same ID and CSR) whose reply was lost on its way to the host
// gets the same certificate. It cannot know of a certificate whose reply the authority itself
// lost. Keys identify requests, values are what is needed to answer them; values are returned as
// they were kept: clone one before changing it.
//
// Each value is kept for 10 minutes, and 1,024 at most: a further one takes any other's place. All
// are gone with the process. The zero value is empty and ready. It is safe for concurrent use.
type Issued[K comparable, V any] struct {
	mu   sync.Mutex
	held map[K]issued[V]
}

type issued[V any] struct {
	value V
	until time.Time
}

// Of returns what was kept for a request.
func (i *Issued[K, V]) Of(key K) (value V, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if found, ok := i.held[key]; ok && time.Now().Before(found.until) {
		return found.value, true
	}
	return value, false
}

// Keep remembers a value for a request, in the place of an earlier one.
func (i *Issued[K, V]) Keep(key K, value V) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	for one, other := range i.held {
		if !now.Before(other.until) {
			delete(i.held, one)
		}
	}
	delete(i.held, key)
	for one := range i.held {
		if len(i.held) < maxIssued {
			break
		}
		delete(i.held, one)
	}
	if i.held == nil {
		i.held = map[K]issued[V]{}
	}
	i.held[key] = issued[V]{value, now.Add(issuedLife)}
}
