package kubestore

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	copyType = "kubernetes.io/tls"
	certKey  = "tls.crt"
	keyKey   = "tls.key"

	// later is how long a copy that another process should write is left to it, and soon the time
	// between two looks at the copies that are due.
	later = 10 * time.Second
	soon  = time.Second
	// mostFailures is how many writes may fail at one look, and failedFor how long these wait.
	mostFailures = 10
	failedFor    = time.Minute
)

// errDamaged means that a record has no certificate of its name.
var errDamaged = errors.New("the Secret has no certificate of its name")

// copies are the names whose copies may not be as they should be, and when to look.
type copies struct {
	mu      *sync.Mutex
	pending map[string]time.Time
}

func newCopies() copies { return copies{&sync.Mutex{}, map[string]time.Time{}} }

func (c copies) add(name string, in time.Duration) {
	at := time.Now().Add(in)
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, pending := c.pending[name]; !pending || at.Before(before) {
		c.pending[name] = at
	}
}

// due takes the names that are due.
func (c copies) due() (names []string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, at := range c.pending { // in any order, so that two processes begin with other names
		if !now.Before(at) {
			names = append(names, name)
			delete(c.pending, name)
		}
	}
	return names
}

// copySoon has the copy of a record that we have stored written.
func (s *Store) copySoon(e secret.Entry) {
	if s.cfg.TLSSecrets && !e.Ends.IsZero() {
		s.copies.add(e.Name, 0)
	}
}

// keepCopies writes copies until ctx ends. While the API server fails it waits.
func (s *Store) keepCopies(ctx context.Context) {
	var waits rotation.Waits
	for ctx.Err() == nil {
		pause := soon
		if err := s.writeCopies(ctx); err == nil {
			waits.Reset()
		} else if ctx.Err() == nil {
			pause = waits.After(err, time.Now(), 0, 0)
			s.log.Warn("cannot write kubernetes.io/tls copies of certificates", "error", err, "again_in", pause.Round(time.Second))
		}
		rotation.Sleep(ctx, pause, clock.Wall, nil)
	}
}

// writeCopies writes those that are due. One that fails delays no other, such as one that an admission
// policy refuses; after some failures the API server has a rest.
func (s *Store) writeCopies(ctx context.Context) (last error) {
	failed := 0
	for _, name := range s.copies.due() {
		if failed == mostFailures {
			s.copies.add(name, 0)
			continue
		}
		if err := ignore(s.writeCopy(ctx, name), final); err != nil {
			failed, last = failed+1, err
			s.copies.add(name, failedFor)
		}
	}
	return last
}

// final reports whether a copy cannot be written until its record, or what is in its place, changes.
func final(err error) bool { return isForeign(err) || errors.Is(err, errDamaged) }

// writeCopy brings the copy of a record in line. It changes none that is not ours.
func (s *Store) writeCopy(ctx context.Context, name string) error {
	record, err := s.find(ctx, name)
	if err != nil || record == nil {
		return err
	}
	e, err := entryOf(record.Metadata)
	if err != nil || e.Ends.IsZero() {
		return err
	}
	wants, err := copyOf(e, record.record())
	if err != nil {
		s.damaged.Add(1)
		return err
	}
	found, err := s.findCopy(ctx, name)
	if err != nil {
		return err
	}
	if found != nil {
		if found.Metadata.Annotations[endsNote] == wants.Metadata.Annotations[endsNote] && maps.EqualFunc(found.Data, wants.Data, bytes.Equal) {
			return nil
		}
		wants.Metadata.UID, wants.Metadata.ResourceVersion = found.Metadata.UID, found.Metadata.ResourceVersion
	}
	_, err = s.put(ctx, s.secrets(), wants)
	if kubeapi.Answered(err, http.StatusConflict) { // another process has written it just now
		s.copies.add(name, later)
		return nil
	}
	return unknown(err)
}

// copyOf is the copy of a record, whose key and name are checked.
func copyOf(e secret.Entry, r secret.Record) (object, error) {
	chain, key, err := secret.KeptPair(r)
	if err != nil {
		return object{}, errDamaged
	}
	certs, err := pki.ParseCertificates(chain)
	if err != nil {
		return object{}, errDamaged
	}
	private, err := pki.ParseKey(key)
	if err != nil || !pki.SameKey(private.Public(), certs[0].PublicKey) || certs[0].VerifyHostname(e.Name) != nil {
		return object{}, errDamaged
	}
	return object{
		APIVersion: "v1", Kind: "Secret", Type: copyType,
		Metadata: metadata{Name: e.Name, Labels: labels(kindCopy), Annotations: map[string]string{nameNote: e.Name, endsNote: stamp(e.Ends)}},
		Data:     map[string][]byte{certKey: chain, keyKey: key},
	}, nil
}

// copyEntry reads the notes of a copy.
func copyEntry(m metadata) (e secret.Entry, err error) {
	if e.Name = m.Annotations[nameNote]; e.Name != m.Name {
		return e, errors.New("its name is not that of its annotation")
	}
	e.Ends, err = time.Parse(time.RFC3339, m.Annotations[endsNote])
	return e, err
}

// findCopy reads a copy. It returns nil if there is none, and [errForeign] if another client's Secret
// is in its place.
func (s *Store) findCopy(ctx context.Context, name string) (*object, error) {
	found, err := s.get(ctx, s.secrets()+"/"+name)
	if found != nil && (found.Type != copyType || !found.Metadata.is(kindCopy)) {
		return nil, s.isForeign("Secret", *found)
	}
	return found, err
}

func (s *Store) deleteCopy(ctx context.Context, name string) error {
	if !s.cfg.TLSSecrets {
		return nil
	}
	for range tries {
		found, err := s.findCopy(ctx, name)
		if err != nil || found == nil {
			return err
		}
		err = s.client.Delete(ctx, s.secrets()+"/"+name, found.Metadata.UID, found.Metadata.ResourceVersion)
		if !kubeapi.Answered(err, http.StatusConflict) {
			return unknown(err)
		}
	}
	return errRaced
}
