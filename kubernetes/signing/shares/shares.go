// Package shares keeps the record by which replicas divide the quotas of their authorities: a
// [Store] for [share.Keeper], in an annotation of a Lease. Each write replaces what it has read,
// or fails.
//
// The account needs the rights to get and update the Lease, and to create it.
package shares

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/ra/share"
)

// Annotation of the Lease has the record.
const Annotation = "countersign.dev/shares"

// Config says which Lease has the record.
type Config struct {
	// Client is one of the home cluster. Required.
	Client kubernetes.Interface
	// Namespace and Name are those of the Lease: not one that elects a leader. It is created if
	// there is none. Required.
	Namespace, Name string
}

// Store is a [share.Store]. It reads the API server at each call, and is safe for concurrent
// use.
type Store struct{ cfg Config }

var _ share.Store = (*Store)(nil)

// New checks the settings. It sends nothing.
func New(cfg Config) (*Store, error) {
	switch {
	case cfg.Client == nil:
		return nil, errors.New("shares: Client is required")
	case len(validation.IsDNS1123Label(cfg.Namespace)) > 0:
		return nil, fmt.Errorf("shares: namespace %.256q of the Lease is not the name of a namespace", cfg.Namespace)
	case len(validation.IsDNS1123Subdomain(cfg.Name)) > 0:
		return nil, fmt.Errorf("shares: name %.256q of the Lease: use lowercase letters, digits, hyphens and dots, 253 at most", cfg.Name)
	}
	return &Store{cfg}, nil
}

// Load implements [share.Store]. Without a resource version the API server answers with the
// latest.
func (s *Store) Load(ctx context.Context) (record []byte, version string, err error) {
	lease, err := s.cfg.Client.CoordinationV1().Leases(s.cfg.Namespace).Get(ctx, s.cfg.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("cannot read the Lease %s: %w", s.name(), err)
	case lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "":
		return nil, "", fmt.Errorf("the Lease %s elects a leader: use another for shares", s.name())
	}
	return []byte(lease.Annotations[Annotation]), lease.ResourceVersion, nil
}

// Save implements [share.Store]. A Lease that was deleted meanwhile is a conflict, too.
func (s *Store) Save(ctx context.Context, record []byte, version string) (err error) {
	leases := s.cfg.Client.CoordinationV1().Leases(s.cfg.Namespace)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.cfg.Namespace, Name: s.cfg.Name, ResourceVersion: version, Annotations: map[string]string{Annotation: string(record)},
	}}
	if version == "" {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && version != "":
		return fmt.Errorf("cannot write the Lease %s: %w: %w", s.name(), share.ErrConflict, err)
	}
	return fmt.Errorf("cannot write the Lease %s: %w", s.name(), err)
}

func (s *Store) name() string { return s.cfg.Namespace + "/" + s.cfg.Name }
