package certmanager

import (
	"bytes"
	"context"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

// fairClient is issuer-lib's client. Its calls of the API server share slots fairly between
// namespaces, and each has a deadline. It reads requests live and issuers from the cache.
type fairClient struct {
	client.Client
	door  *Door
	slots *signing.Slots
}

// Get implements [client.Reader]. Of a request it returns what decides about it.
func (c fairClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	cr, live := object.(*cmapi.CertificateRequest)
	if !live {
		return c.Client.Get(ctx, key, object, opts...)
	}
	return c.slots.Do(ctx, key.Namespace, func(ctx context.Context) error {
		err := c.Client.Get(ctx, key, object, opts...)
		if t := taskOf(ctx); t != nil && t.gave && bytes.Equal(cr.Status.Certificate, t.call.cert.Chain) {
			t.written = true // the reply to a write was lost
		}
		*cr = *needed(cr)
		return err
	})
}

// Status implements [client.StatusClient].
func (c fairClient) Status() client.SubResourceWriter { return fairStatus{c.Client.Status(), c} }

type fairStatus struct {
	client.SubResourceWriter
	of fairClient
}

// Patch implements [client.SubResourceWriter], and records whether a certificate was written.
func (s fairStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	t, request := taskOf(ctx), ctx
	return s.of.slots.Do(ctx, object.GetNamespace(), func(ctx context.Context) error {
		if t == nil || !t.gives {
			return s.SubResourceWriter.Patch(ctx, object, patch, opts...)
		}
		ctx, cancel := signing.Linger(ctx)
		defer cancel()
		err := s.SubResourceWriter.Patch(ctx, object, patch, opts...)
		t.written = err == nil
		if err != nil && request.Err() == nil && !apierrors.IsNotFound(err) {
			s.of.door.gates[t.call.authority].Wrote(object.GetNamespace(), t.uid, err)
		}
		return err
	})
}
