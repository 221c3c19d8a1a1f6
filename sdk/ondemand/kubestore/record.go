package kubestore

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// object is as much of a Secret or a Lease as is used.
type object struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   metadata          `json:"metadata"`
	Type       string            `json:"type,omitempty"`
	Data       map[string][]byte `json:"data,omitempty"`
	Spec       *lease            `json:"spec,omitempty"`
}

type metadata struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Created         string            `json:"creationTimestamp,omitempty"` // by the API server's clock
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

// The keys of a record's data.
const (
	identityKey  = "identity"
	authorityKey = "authority"
	contentKey   = "content"
)

func labels(kind string) map[string]string {
	return map[string]string{managedBy: manager, kindLabel: kind}
}

func (m metadata) is(kind string) bool {
	return m.Labels[managedBy] == manager && m.Labels[kindLabel] == kind
}

// ours reports whether an object is the record of a name.
func (o object) ours(name string) bool {
	return o.Type == Type && o.Metadata.is(kindRecord) && o.Metadata.Annotations[nameNote] == name
}

// recordOf is the Secret of a record, without a version.
func recordOf(e secret.Entry, r secret.Record) object {
	notes := map[string]string{nameNote: e.Name}
	if !e.Ends.IsZero() {
		notes[renewNote], notes[endsNote] = stamp(e.Renew), stamp(e.Ends)
	}
	return object{
		APIVersion: "v1", Kind: "Secret", Type: Type,
		Metadata: metadata{Name: objectName(e.Name), Labels: labels(kindRecord), Annotations: notes},
		Data:     map[string][]byte{identityKey: []byte(r.Identity), authorityKey: []byte(r.Authority), contentKey: r.Content},
	}
}

func (o object) record() secret.Record {
	return secret.Record{Identity: string(o.Data[identityKey]), Authority: string(o.Data[authorityKey]), Content: o.Data[contentKey]}
}

// entryOf reads the notes of a record.
func entryOf(m metadata) (e secret.Entry, err error) {
	e.Name = m.Annotations[nameNote]
	if m.Name != objectName(e.Name) {
		return e, errors.New("its name is not that of its annotation")
	}
	if folded, err := names.Fold(e.Name); err != nil || folded != e.Name {
		return e, errors.New("its annotation must be a DNS name in lower case")
	}
	if m.Annotations[endsNote] == "" {
		return e, nil
	}
	if e.Renew, err = time.Parse(time.RFC3339, m.Annotations[renewNote]); err != nil {
		return e, err
	}
	e.Ends, err = time.Parse(time.RFC3339, m.Annotations[endsNote])
	return e, err
}

// find reads the record of a name. It returns nil if there is none, and [errForeign] if another
// client's object is in its place.
func (s *Store) find(ctx context.Context, name string) (*object, error) {
	found, err := s.get(ctx, s.secrets()+"/"+objectName(name))
	if found != nil && !found.ours(name) {
		return nil, s.isForeign("Secret", *found)
	}
	return found, err
}

// Load implements ondemand.Storage. The caller verifies the record.
func (s *Store) Load(ctx context.Context, name string) (secret.Record, error) {
	found, err := s.find(ctx, name)
	if err != nil {
		return secret.Record{}, err
	}
	s.saw(name, found)
	if found == nil || len(found.Data[contentKey]) == 0 { // a claim that was taken over
		return secret.Record{}, nil
	}
	return found.record(), nil
}

// Store implements ondemand.Storage: a record is created or replaced whole. With a claim it replaces
// what an earlier holder wrote late; an earlier holder replaces nothing.
func (s *Store) Store(ctx context.Context, e secret.Entry, r secret.Record) error {
	o := recordOf(e, r)
	var met error
	for range tries {
		at, err := s.versionOf(ctx, e.Name)
		if err != nil {
			return err
		}
		if s.lost(e.Name) { // what was found may be the successor's
			return errLost
		}
		o.Metadata.UID, o.Metadata.ResourceVersion = at.UID, at.ResourceVersion
		stored, err := s.put(ctx, s.secrets(), o)
		switch {
		case err == nil:
			s.saw(e.Name, &stored)
			s.copySoon(e)
			return nil
		case !raced(err):
			return unknown(err)
		}
		met = err // another client's change, or a namespace that is missing
		s.unsaw(e.Name)
		if !s.holds(e.Name) {
			break
		}
	}
	return unknown(met)
}

// Delete implements ondemand.Storage. The copy goes first, so that none is left without its record. As
// with Store, an earlier holder of the claim deletes nothing that another has written.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.deleteCopy(ctx, name); err != nil && !isForeign(err) {
		return err
	}
	for range tries {
		found, err := s.find(ctx, name)
		if isForeign(err) || found == nil {
			return ignore(err, isForeign)
		}
		if s.lost(name) { // what was found may be the successor's
			return errLost
		}
		err = s.client.Delete(ctx, s.secrets()+"/"+found.Metadata.Name, found.Metadata.UID, found.Metadata.ResourceVersion)
		if err == nil {
			s.unsaw(name)
			return nil
		}
		if !kubeapi.Answered(err, http.StatusConflict) {
			return unknown(err)
		}
	}
	return errRaced
}

func ignore(err error, which func(error) bool) error {
	if which(err) {
		return nil
	}
	return err
}

// versionOf returns the version of a record that a write replaces, which has none if there is no
// record: that which was seen under the claim, or the present one.
func (s *Store) versionOf(ctx context.Context, name string) (metadata, error) {
	s.mu.Lock()
	c := s.claims[name]
	if c != nil && c.seen {
		defer s.mu.Unlock()
		return c.record, nil
	}
	s.mu.Unlock()
	found, err := s.find(ctx, name)
	if err != nil || found == nil {
		return metadata{}, err
	}
	return found.Metadata, nil
}

// saw remembers the version of a record that is claimed; nil for none.
func (s *Store) saw(name string, found *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[name]; c != nil {
		c.seen, c.record = true, metadata{}
		if found != nil {
			c.record = metadata{UID: found.Metadata.UID, ResourceVersion: found.Metadata.ResourceVersion}
		}
	}
}

func (s *Store) unsaw(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[name]; c != nil {
		c.seen = false
	}
}

// lost reports whether we had claimed a name that another may have claimed by now.
func (s *Store) lost(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[name]
	return c != nil && !c.Held()
}

// holds reports whether we have claimed a name.
func (s *Store) holds(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[name]
	return c != nil && c.Held()
}
