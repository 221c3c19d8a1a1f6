// Package podcert signs PodCertificateRequests (certificates.k8s.io/v1, Kubernetes 1.37): a
// kubelet makes one for each pod with a podCertificate volume. A [Door] follows those of its
// signer names, checks each against the live pod, service account and node, has an
// [ra.Issuer] issue, and writes the outcome into the request's status.
//
// A status is final: a pod whose request is Denied or Failed never asks again, and one that was
// refused a refresh keeps its files until they expire. So only what can never be right is
// refused, and never on an informer's word. Everything else leaves the request pending: a CA
// or an API server that is away, a quota, an unknown error. Kubernetes deletes a request after
// 15 minutes, and the kubelet makes another.
//
//	informer ──▶ signing.Work ──▶ judge ──▶ verify ──▶ Issue ──▶ status: Issued
//	                  ▲             │         │          │
//	                  │             └─────────┴──────────┴──▶ can never be right: verified
//	                  └──────────── pending ◀───────────────  once more, Denied or Failed
//
// The request does not name its requester. NodeRestriction restricts a node to its own pods; an
// admission policy must restrict all other clients that may create requests.
//
// Rights: get, list and watch podcertificaterequests, update podcertificaterequests/status, sign
// on the signers, and get on pods, service accounts and nodes. Those three are looked up live
// and not watched: that takes no list of every pod, and no memory of them. A service account
// or node that was seen with the right UID within the last minute is not asked for again for
// a grant, so a certificate costs little more than two calls of the API server.
package podcert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

type request = certificatesv1.PodCertificateRequest

// Config configures a [Door]. Its Issuer has the door [signing.PodDoor] of each signer.
type Config struct {
	signing.Config
	// Client is a client of that cluster. It should allow 50 calls a second or more. Required.
	Client kubernetes.Interface
	// Signers are the names that the door serves, such as example.com/workloads. Required.
	Signers []string
}

// Door signs the requests of one cluster.
type Door struct {
	cfg     Config
	lookups *signing.Slots
	writes  *signing.Slots
	known   *known
	gates   signing.Gates

	follower *signing.Follower[*request]
}

// New checks the settings. It asks the API server nothing before Run.
func New(cfg Config) (*Door, error) {
	var err error
	if cfg.Config, err = cfg.Checked(); err != nil {
		return nil, fmt.Errorf("podcert: %w", err)
	}
	if cfg.Client == nil {
		return nil, errors.New("podcert: invalid Config: Client is required")
	}
	gates, err := signing.NewGates(cfg.Signers)
	if err != nil {
		return nil, fmt.Errorf("podcert: %w", err)
	}
	d := &Door{cfg: cfg, lookups: signing.NewSlots(), writes: signing.NewSlots(), known: newKnown(), gates: gates}
	d.follower = &signing.Follower[*request]{
		What: "pod certificate requests", Signers: cfg.Signers, Informer: d.informer,
		Open: d.open, Owner: (*request).GetNamespace, Handle: d.handle, Log: d.cfg.Log,
	}
	return d, nil
}

// Run works until ctx ends and all is quiet. It may be called again then, as leadership comes
// and goes, but not twice at once. No write begins once ctx has ended; one under way has a
// second more.
func (d *Door) Run(ctx context.Context) { d.follower.Run(ctx) }

// Ready returns nil while the door runs and has seen all requests that there were when it
// began.
func (d *Door) Ready() error { return d.follower.Ready() }

// Shut returns the signers for which no certificates are asked, as they could not be written.
func (d *Door) Shut() []signing.Shut { return d.gates.Shut() }

// informer follows the requests for one signer.
func (d *Door) informer(signer string) cache.SharedIndexInformer {
	informer := informers.NewFilteredPodCertificateRequestInformer(d.cfg.Client, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.signerName=" + signer
		signing.Latest(o)
	})
	_ = informer.SetTransform(trim) // it fails only once the informer runs
	return informer
}

// open reports whether there is anything to do. It does not trust the server to have chosen.
func (d *Door) open(r *request) bool {
	_, ours := d.gates[r.Spec.SignerName]
	return ours && !finished(r)
}

// finished reports whether a request has its status, or is deleted: a finalizer may keep it for
// ever.
func finished(r *request) bool {
	return len(r.Status.Conditions) > 0 || r.Status.CertificateChain != "" || r.DeletionTimestamp != nil
}

// trim leaves what decides about a request, and of a finished one its name. The API server keeps an
// object's metadata when its status is written.
func trim(object any) (any, error) {
	r, ok := object.(*request)
	if !ok {
		return object, nil
	}
	return trimmed(r), nil
}

func trimmed(r *request) *request {
	r.ManagedFields, r.Labels, r.Annotations, r.OwnerReferences, r.Finalizers = nil, nil, nil, nil, nil
	r.Spec.StubPKCS10Request = bytes.Clone(r.Spec.StubPKCS10Request[:min(len(r.Spec.StubPKCS10Request), maxCSR+1)])
	signing.NoteSize(r, r, len(r.Spec.StubPKCS10Request))
	r.Spec.UnverifiedUserAnnotations = annotations(r.Spec.UnverifiedUserAnnotations)
	if finished(r) {
		r.Spec.StubPKCS10Request, r.Spec.UnverifiedUserAnnotations, r.Status.CertificateChain = nil, nil, ""
	}
	return r
}

// annotations leaves the one annotation that is known, and of the others the first, for which the
// request is refused.
func annotations(all map[string]string) map[string]string {
	kept := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key == AnnotationDNSNames {
			kept[key] = signing.Keep(all[key], maxAnnotation+1)
		} else if _, known := kept[AnnotationDNSNames]; len(kept) == 0 || known && len(kept) == 1 {
			kept[signing.KeepName(key)] = ""
		}
	}
	return kept
}
