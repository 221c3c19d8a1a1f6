package istiodtls

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// stateKey is where the Secret has the records of package secret. They contain the key, too.
const stateKey = "countersign-state"

// kept is a record as it is written.
type kept struct {
	Identity  string `json:"identity,omitempty"`
	Authority string `json:"authority"`
	Content   []byte `json:"content"`
}

// storage keeps the records in memory, from where they go into the Secret.
type storage struct{ *Keeper }

// Load implements [secret.Storage].
func (s storage) Load(_ context.Context, name string) (secret.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	return secret.Record(r), nil
}

// Store implements [secret.Storage].
func (s storage) Store(_ context.Context, name string, record secret.Record) error {
	s.mu.Lock()
	if s.records[name] = kept(record); len(record.Content) == 0 {
		delete(s.records, name)
	}
	s.mu.Unlock()
	s.changed.Send()
	return nil
}

// state returns the records as they are written.
func (k *Keeper) state() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, _ := json.Marshal(k.records) // of strings and bytes: it cannot fail
	return text
}

// recall takes the records of a Secret that is ours. The error never quotes them.
func (k *Keeper) recall(found *corev1.Secret) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records = map[string]kept{}
	if found == nil || len(found.Data[stateKey]) == 0 {
		return nil
	}
	if json.Unmarshal(found.Data[stateKey], &k.records) != nil || k.records == nil {
		k.records = map[string]kept{}
		return errors.New("what an earlier leader left in it cannot be read: a new certificate is asked for")
	}
	return nil
}
