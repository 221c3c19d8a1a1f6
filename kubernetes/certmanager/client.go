package certmanager

import (
	"bytes"
	"context"
	"encoding/json"

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
		if t := taskOf(ctx); t != nil && cr.UID == t.uid {
			t.version = cr.ResourceVersion
			t.written = t.written || t.gave && bytes.Equal(cr.Status.Certificate, t.call.cert.Chain) // the reply to a write was lost
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
	if t != nil {
		patch = fenced{patch, t.version}
	}
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

// fenced is a patch of the version that was read of an object: issuer-lib names neither version nor UID, and
// another request may have been made under the same name since. The API server answers with a conflict then.
type fenced struct {
	client.Patch
	version string
}

// Data implements [client.Patch].
func (f fenced) Data(object client.Object) ([]byte, error) {
	data, err := f.Patch.Data(object)
	if err != nil {
		return nil, err
	}
	var all, meta map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(all["metadata"], &meta); err != nil {
		return nil, err
	}
	if meta["resourceVersion"], err = json.Marshal(f.version); err != nil {
		return nil, err
	}
	if all["metadata"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}
