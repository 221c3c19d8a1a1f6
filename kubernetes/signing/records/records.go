// Package records keeps what the registration authority has to know after a restart in a
// ConfigMap: [Store], with a key for each authority. It is public: the roots of the authorities,
// and by how much each backdates.
//
// The account needs the rights to get and update the ConfigMap, and to create it.
package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxRecord bounds the record of one authority, in bytes. An API server takes 1 MiB for all.
	maxRecord = 512 << 10
	timeout   = 10 * time.Second // for each request
	attempts  = 5                // to write, if other replicas write as well
)

// Config says where the records are.
type Config struct {
	// Client is one of the home cluster. Required.
	Client kubernetes.Interface
	// Namespace and Name are those of the ConfigMap. It is created if there is none. Required.
	Namespace, Name string
	// Held returns nil while this replica may write: lease.Held. Default: always.
	Held func() error
}

// Store is a ra.Updater. It reads the API server at each call, and is safe for concurrent use.
type Store struct {
	cfg  Config
	turn chan struct{} // taken by who updates: the authorities of a process would conflict
}

// New checks the settings. It sends nothing.
func New(cfg Config) (*Store, error) {
	if cfg.Held == nil {
		cfg.Held = func() error { return nil }
	}
	switch {
	case cfg.Client == nil:
		return nil, errors.New("records: Client is required")
	case len(validation.IsDNS1123Label(cfg.Namespace)) > 0:
		return nil, fmt.Errorf("records: namespace %.256q of the ConfigMap is not the name of a namespace", cfg.Namespace)
	case len(validation.IsDNS1123Subdomain(cfg.Name)) > 0:
		return nil, fmt.Errorf("records: name %.256q of the ConfigMap: use lowercase letters, digits, hyphens and dots, 253 at most", cfg.Name)
	}
	return &Store{cfg, make(chan struct{}, 1)}, nil
}

// CheckName refuses names of authorities that cannot be a key of a ConfigMap.
func CheckName(authority string) error {
	if len(validation.IsConfigMapKey(authority)) > 0 {
		return fmt.Errorf("name %.256q of an authority: use letters, digits, '-', '_' and '.', 253 at most, as it is a key of a ConfigMap", authority)
	}
	return nil
}

// Load returns the record of an authority; none, without an error, if there is none. What is
// malformed fails with the reason [ca.Invalid].
func (s *Store) Load(ctx context.Context, authority string) ([]byte, error) {
	if err := CheckName(authority); err != nil {
		return nil, err
	}
	kept, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	value, has := kept.Data[authority]
	if !has {
		return nil, nil
	}
	if err := checkRecord([]byte(value)); err != nil {
		return nil, ca.Errorf(ca.Invalid, "invalid key %q of ConfigMap %s/%s: %w", authority, s.cfg.Namespace, s.cfg.Name, err)
	}
	return []byte(value), nil
}

// Save keeps a record. An error leaves open whether it was kept.
func (s *Store) Save(ctx context.Context, authority string, record []byte) error {
	return s.Update(ctx, authority, func([]byte) []byte { return record })
}

// Update replaces a record with what change makes of it, and calls that again if another has replaced
// it meanwhile. Who only reads needs no Held. A malformed record reaches change as it is.
func (s *Store) Update(ctx context.Context, authority string, change func(record []byte) []byte) error {
	if err := CheckName(authority); err != nil {
		return fmt.Errorf("record of authority %.256q: %w", authority, err)
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("record of authority %.256q: %w", authority, ctx.Err())
	}
	var err error
	for range attempts {
		if err = s.update(ctx, authority, change); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return err
}

// update writes over what it has read, or not at all: a leader that was stopped between the two
// overwrites nothing of its successor's.
func (s *Store) update(ctx context.Context, authority string, change func(record []byte) []byte) error {
	kept, err := s.get(ctx)
	if err != nil {
		return err
	}
	before := kept.Data[authority]
	record := change([]byte(before))
	if before == string(record) {
		return nil
	}
	if err := checkRecord(record); err != nil {
		return fmt.Errorf("record of authority %.256q: %w", authority, err)
	}
	if kept.Data == nil {
		kept.Data = map[string]string{}
	}
	kept.Data[authority] = string(record)
	if err := s.cfg.Held(); err != nil {
		return err
	}
	return s.put(ctx, kept)
}

// get returns an empty ConfigMap, without a version, if there is none.
func (s *Store) get(ctx context.Context) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	kept, err := s.cfg.Client.CoreV1().ConfigMaps(s.cfg.Namespace).Get(ctx, s.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.cfg.Namespace, Name: s.cfg.Name}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read ConfigMap %s/%s: %w", s.cfg.Namespace, s.cfg.Name, err)
	}
	return kept, nil
}

func (s *Store) put(ctx context.Context, kept *corev1.ConfigMap) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	maps := s.cfg.Client.CoreV1().ConfigMaps(s.cfg.Namespace)
	if kept.ResourceVersion == "" {
		_, err = maps.Create(ctx, kept, metav1.CreateOptions{})
	} else {
		_, err = maps.Update(ctx, kept, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("cannot write ConfigMap %s/%s: %w", s.cfg.Namespace, s.cfg.Name, err)
	}
	return nil
}

// checkRecord takes a JSON object of a size that fits.
func checkRecord(record []byte) error {
	if len(record) > maxRecord {
		return fmt.Errorf("it has %d bytes, %d are allowed", len(record), maxRecord)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(record, &object) != nil || object == nil {
		return errors.New("it is no JSON object")
	}
	return nil
}
