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
// The request itself bears no requester: NodeRestriction holds a node to its own pods, and
// whoever else may create requests must be held by an admission policy.
//
// Rights: get, list and watch podcertificaterequests, update podcertificaterequests/status, sign
// on the signers, and get on pods, service accounts and nodes. Those three are looked up live
// and not watched: that takes no list of every pod, and no memory of them. A service account
// or node that was seen with the right UID within the last minute is not asked for again for
// a grant, so a certificate costs little more than two calls of the API server.
package podcert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

type request = certificatesv1.PodCertificateRequest

// Config configures a [Door].
type Config struct {
	// Cluster is the verified name of the cluster, for [ra.Subject].
	Cluster string
	// Client is a client of that cluster. It should allow 50 calls a second or more.
	Client kubernetes.Interface
	// Issuer has the door [signing.PodDoor] of each signer.
	Issuer  ra.Issuer
	Signers []Signer
	// Now is the wall clock. Default: the system's.
	Now func() time.Time
	// Observe hears of each outcome, for metrics. It must not block. Default: none.
	Observe func(Event)
	// Log is for operators. Default: [slog.Default].
	Log *slog.Logger
}

// Signer is a signer name that the door serves.
type Signer struct {
	// Name is the signer's name, such as example.com/workloads.
	Name string
}

// Event is an outcome. Its texts are few, and none comes from a request.
type Event struct {
	// Signer is a name from [Config.Signers].
	Signer string
	// Result is "issued", "denied", "failed", "pending" (it comes back), or "undelivered" (a
	// certificate that the API server has not taken).
	Result string
}

const (
	resultIssued      = "issued"
	resultPending     = "pending"
	resultUndelivered = "undelivered"
)

// Door signs the requests of one cluster.
type Door struct {
	cfg     Config
	signers map[string]Signer
	lookups *signing.Slots
	writes  *signing.Slots
	known   *known
	gates   signing.Gates

	follower *signing.Follower[*request]
}

// New checks the settings. It asks the API server nothing before Run.
func New(cfg Config) (*Door, error) {
	d := &Door{cfg: cfg.withDefaults(), signers: map[string]Signer{}, lookups: signing.NewSlots(), writes: signing.NewSlots(), known: newKnown(), gates: signing.Gates{}}
	if cfg.Cluster == "" || cfg.Client == nil || cfg.Issuer == nil || len(cfg.Signers) == 0 {
		return nil, errors.New("podcert: Config needs Cluster, Client, Issuer and Signers")
	}
	for _, s := range cfg.Signers {
		if err := signing.CheckName(s.Name); err != nil {
			return nil, err
		}
		if _, twice := d.signers[s.Name]; twice {
			return nil, fmt.Errorf("the signer %q is configured twice", s.Name)
		}
		d.signers[s.Name], d.gates[s.Name] = s, signing.NewGate()
	}
	d.follower = &signing.Follower[*request]{
		What: "pod certificate requests", Signers: slices.Collect(maps.Keys(d.signers)), Informer: d.informer,
		Open: d.open, Owner: (*request).GetNamespace, Handle: d.handle, Log: d.cfg.Log,
	}
	return d, nil
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Log = loglimit.Limit(c.Log).With("cluster", c.Cluster)
	return c
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
	_, ours := d.signers[r.Spec.SignerName]
	return ours && !finished(r)
}

// finished reports whether a request has its status, or is deleted: a finalizer may keep it for
// ever.
func finished(r *request) bool {
	return len(r.Status.Conditions) > 0 || r.Status.CertificateChain != "" || r.DeletionTimestamp != nil
}

// trim drops what is not needed, above all the chains of finished requests. The API server keeps
// an object's metadata when its status is written.
func trim(object any) (any, error) {
	r, ok := object.(*request)
	if !ok {
		return object, nil
	}
	r.ManagedFields, r.Labels, r.Annotations, r.OwnerReferences, r.Finalizers = nil, nil, nil, nil, nil
	if finished(r) {
		r.Spec.StubPKCS10Request, r.Spec.UnverifiedUserAnnotations, r.Status.CertificateChain = nil, nil, ""
	}
	return r, nil
}
