// Package renewals keeps the record of machines that renew by the certificate they hold: a [Store]
// in a ConfigMap. Each write replaces what it has read, or fails. The record is as safe as that
// object: who may change it may let a certificate renew itself for longer.
//
// The account needs the rights to get and update the ConfigMap, and to create it.
package renewals

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/ra/share"
)

// Key of the ConfigMap has the record.
const Key = "renewals.json"

// Config says which ConfigMap has the record.
type Config struct {
	// Client is one of the home cluster. Required.
	Client kubernetes.Interface
	// Namespace and Name are those of the ConfigMap. It is created if there is none. Required.
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
		return nil, errors.New("renewals: Client is required")
	case len(validation.IsDNS1123Label(cfg.Namespace)) > 0:
		return nil, fmt.Errorf("renewals: namespace %.256q of the ConfigMap is not the name of a namespace", cfg.Namespace)
	case len(validation.IsDNS1123Subdomain(cfg.Name)) > 0:
		return nil, fmt.Errorf("renewals: name %.256q of the ConfigMap: use lowercase letters, digits, hyphens and dots, 253 at most", cfg.Name)
	}
	return &Store{cfg}, nil
}

// Load implements [share.Store]. Without a resource version the API server answers with the
// latest.
func (s *Store) Load(ctx context.Context) (record []byte, version string, err error) {
	kept, err := s.cfg.Client.CoreV1().ConfigMaps(s.cfg.Namespace).Get(ctx, s.cfg.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("cannot read the ConfigMap %s: %w", s.name(), err)
	}
	return []byte(kept.Data[Key]), kept.ResourceVersion, nil
}

// Save implements [share.Store]. A ConfigMap that was deleted meanwhile is a conflict, too.
func (s *Store) Save(ctx context.Context, record []byte, version string) (err error) {
	maps := s.cfg.Client.CoreV1().ConfigMaps(s.cfg.Namespace)
	next := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.cfg.Namespace, Name: s.cfg.Name, ResourceVersion: version},
		Data:       map[string]string{Key: string(record)},
	}
	if version == "" {
		_, err = maps.Create(ctx, next, metav1.CreateOptions{})
	} else {
		_, err = maps.Update(ctx, next, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && version != "":
		return fmt.Errorf("cannot write the ConfigMap %s: %w: %w", s.name(), share.ErrConflict, err)
	}
	return fmt.Errorf("cannot write the ConfigMap %s: %w", s.name(), err)
}

func (s *Store) name() string { return s.cfg.Namespace + "/" + s.cfg.Name }
