// Package record keeps what the registration authority has to know after a restart, and what its
// replicas share, in objects of the home cluster: a [Store] has a record for each authority in a
// ConfigMap, a [Single] is one record in a ConfigMap or in an annotation of a Lease. Each write
// replaces the version that it has read, or fails. [Numbering] numbers what replicas publish.
//
// A record is as safe as its object: the accounts that may change it decide what is in it. None holds
// a secret. The account needs the rights to get, update and create the object.
package record

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/ra/share"
)

// Kind is the kind of an object that holds records.
type Kind string

// The kinds. The records of a Lease are its annotations.
const (
	ConfigMap Kind = "ConfigMap"
	Lease     Kind = "Lease"
)

// Object identifies the object that holds records. It is created if it does not exist.
type Object struct {
	// Client is one of the home cluster. Required.
	Client kubernetes.Interface
	// Kind is that of the object. Required.
	Kind Kind
	// Namespace and Name are those of the object, which is not a Lease that elects a leader. Required.
	Namespace, Name string
}

// content is an object as it was read. Without a version it does not exist.
type content struct {
	metav1.ObjectMeta
	data map[string]string
}

func (o Object) check() error {
	switch {
	case o.Client == nil:
		return errors.New("record: Client is required")
	case o.Kind != ConfigMap && o.Kind != Lease:
		return fmt.Errorf("record: invalid kind %.64q: use ConfigMap or Lease", o.Kind)
	case len(validation.IsDNS1123Label(o.Namespace)) > 0:
		return fmt.Errorf("record: invalid namespace %.256q of the %s", o.Namespace, o.Kind)
	case len(validation.IsDNS1123Subdomain(o.Name)) > 0:
		return fmt.Errorf("record: invalid name %.256q of the %s: use lowercase letters, digits, hyphens and dots, 253 at most", o.Name, o.Kind)
	}
	return nil
}

func (o Object) String() string { return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name) }

// get reads the object. Without a resource version the API server answers with the latest.
func (o Object) get(ctx context.Context) (c content, err error) {
	if o.Kind == Lease {
		var lease *coordinationv1.Lease
		if lease, err = o.Client.CoordinationV1().Leases(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{}); err == nil {
			if lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
				return c, fmt.Errorf("%s elects a leader: use another for records", o)
			}
			c = content{lease.ObjectMeta, lease.Annotations}
		}
	} else {
		var kept *corev1.ConfigMap
		if kept, err = o.Client.CoreV1().ConfigMaps(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{}); err == nil {
			c = content{kept.ObjectMeta, kept.Data}
		}
	}
	if apierrors.IsNotFound(err) {
		return o.empty(), nil
	}
	if err != nil {
		return c, fmt.Errorf("cannot read the %s: %w", o, err)
	}
	if c.data == nil {
		c.data = map[string]string{}
	}
	return c, nil
}

// empty returns the content of an object that does not exist.
func (o Object) empty() content {
	return content{metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, map[string]string{}}
}

// put replaces the object of the content's version. The error wraps [share.ErrConflict] if that is not
// the current one: the object was changed, created or deleted meanwhile.
func (o Object) put(ctx context.Context, c content) (err error) {
	if o.Kind == Lease {
		c.Annotations = c.data
		leases := o.Client.CoordinationV1().Leases(o.Namespace)
		err = write(ctx, &coordinationv1.Lease{ObjectMeta: c.ObjectMeta}, c.ResourceVersion, leases.Create, leases.Update)
	} else {
		maps := o.Client.CoreV1().ConfigMaps(o.Namespace)
		err = write(ctx, &corev1.ConfigMap{ObjectMeta: c.ObjectMeta, Data: c.data}, c.ResourceVersion, maps.Create, maps.Update)
	}
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && c.ResourceVersion != "":
		return fmt.Errorf("cannot write the %s: %w: %w", o, share.ErrConflict, err)
	}
	return fmt.Errorf("cannot write the %s: %w", o, err)
}

// write creates an object that has no version, and replaces one that has.
func write[T any](ctx context.Context, object T, version string, create func(context.Context, T, metav1.CreateOptions) (T, error), update func(context.Context, T, metav1.UpdateOptions) (T, error)) (err error) {
	if version == "" {
		_, err = create(ctx, object, metav1.CreateOptions{})
	} else {
		_, err = update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}
