// Package csr signs CertificateSigningRequests (certificates.k8s.io/v1) for signer names of our
// own. A [Door] follows those of its signers; it approves what the policy grants, if the operator
// lets it ([Signer.Approve]), and signs what is approved, by any approver: an approval is
// not a grant, and the policy decides all the same.
//
// The requester is the user that the API server recorded as its creator (spec.username): see [SubjectOf]. A
// request is right if its subject is empty, its names are exactly those that the policy gives the
// requester, and its usages are within the rule's. What can never be right is Denied before it is
// approved and Failed after that; both are final, so they are only written after a look at the live object.
// Everything else stays pending: a CA or an API server that is away, a quota, an unknown error.
//
//	informer ──▶ signing.Work ──▶ live object ──▶ judge ──▶ approve ──▶ Issue ──▶ status.certificate
//	                  ▲                             │                     │
//	                  └───────── pending ◀──────────┴─────────────────────┴──▶ Denied or Failed
//
// Kubernetes deletes requests: an hour after they were signed, approved or refused, and a day after
// they were made (kube-controller-manager, csrcleaner).
//
// Rights: get, list and watch certificatesigningrequests, update certificatesigningrequests/status,
// sign on the signers, and get on serviceaccounts and pods; to approve, also update
// certificatesigningrequests/approval and approve on the signers.
package csr

import (
	"context"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

type request = certificatesv1.CertificateSigningRequest

// Config configures a [Door]. Its Issuer has the door [signing.CSRDoor] of each signer.
type Config struct {
	signing.Config
	// Client is a client of that cluster. It should allow 50 calls a second or more. Required.
	Client  kubernetes.Interface
	Signers []Signer
}

// Signer is a signer name that the door serves.
type Signer struct {
	// Name is the signer's name, such as example.com/workloads.
	Name string
	// Approve approves what the policy grants and denies what it never will. Default: another
	// client approves.
	Approve bool
}

// Door signs the requests of one cluster.
type Door struct {
	cfg     Config
	signers map[string]Signer
	reads   *signing.Slots
	writes  *signing.Slots
	gates   signing.Gates

	follower *signing.Follower[*request]
}

// New checks the settings. It asks the API server nothing before Run.
func New(cfg Config) (*Door, error) {
	var err error
	if cfg.Config, err = cfg.Checked(); err != nil {
		return nil, fmt.Errorf("csr: %w", err)
	}
	if cfg.Client == nil {
		return nil, errors.New("csr: invalid Config: Client is required")
	}
	d := &Door{cfg: cfg, signers: map[string]Signer{}, reads: signing.NewSlots(), writes: signing.NewSlots()}
	var names []string
	for _, s := range cfg.Signers {
		names = append(names, s.Name)
		d.signers[s.Name] = s
	}
	if d.gates, err = signing.NewGates(names); err != nil {
		return nil, fmt.Errorf("csr: %w", err)
	}
	d.follower = &signing.Follower[*request]{
		What: "certificate signing requests", Signers: names, Informer: d.informer,
		Open: d.open, Owner: owner, Handle: d.handle, Log: d.cfg.Log,
	}
	return d, nil
}

// Run works until ctx ends and all is quiet. It may be called again then, as leadership comes and
// goes, but not twice at once.
func (d *Door) Run(ctx context.Context) { d.follower.Run(ctx) }

// Ready returns nil while the door runs and has seen all requests that there were when it began.
func (d *Door) Ready() error { return d.follower.Ready() }

// Shut returns the signers for which no certificates are asked, as they could not be written.
func (d *Door) Shut() []signing.Shut { return d.gates.Shut() }

// informer follows the requests for one signer.
func (d *Door) informer(signer string) cache.SharedIndexInformer {
	informer := informers.NewFilteredCertificateSigningRequestInformer(d.cfg.Client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.signerName=" + signer
		signing.Latest(o)
	})
	_ = informer.SetTransform(trim) // it fails only once the informer runs
	return informer
}

// open reports whether there is anything to do. It does not trust the server to have chosen.
func (d *Door) open(r *request) bool {
	s, ours := d.signers[r.Spec.SignerName]
	return ours && !finished(r) && (s.Approve || has(r, certificatesv1.CertificateApproved))
}

// finished reports whether a request has its final status.
func finished(r *request) bool {
	return len(r.Status.Certificate) > 0 || has(r, certificatesv1.CertificateDenied) || has(r, certificatesv1.CertificateFailed)
}

func has(r *request, kind certificatesv1.RequestConditionType) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// trim leaves what decides whether there is anything to do: all else is read from the live object.
func trim(object any) (any, error) {
	r, ok := object.(*request)
	if !ok {
		return object, nil
	}
	return trimmed(r), nil
}

func trimmed(r *request) *request {
	small := &request{ObjectMeta: metav1.ObjectMeta{Name: r.Name, UID: r.UID, CreationTimestamp: r.CreationTimestamp, ResourceVersion: r.ResourceVersion}}
	signing.NoteSize(small, r, len(r.Spec.Request))
	small.Spec.SignerName, small.Spec.Username = r.Spec.SignerName, signing.Keep(r.Spec.Username, maxUser)
	if len(r.Status.Certificate) > 0 {
		small.Status.Certificate = []byte{'-'}
	}
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			small.Status.Conditions = append(small.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c.Type, Status: c.Status})
		}
	}
	return small
}

// maxUser is more than the name of any service account, and more than the policy allows users.
const maxUser = 512

// needed leaves what decides about a request. Its requester may add megabytes of annotations, groups
// and extra values, and thousands of requests may wait for a certificate or for the API server.
func needed(r *request) *request {
	small := trimmed(r)
	spec, of := &small.Spec, r.Spec
	spec.Request, spec.ExpirationSeconds = signing.KeepCSR(of.Request), of.ExpirationSeconds
	spec.UID, spec.Usages = signing.KeepName(of.UID), signing.KeepUsages(of.Usages)
	for _, group := range []string{nobodysGroup, nodeGroup, owner(r)} { // owner is a service account's group
		if slices.Contains(of.Groups, group) {
			spec.Groups = append(spec.Groups, group)
		}
	}
	for _, key := range []string{extraPod, extraPodUID, extraNode, extraNodeUID} {
		if values := of.Extra[key]; len(values) == 1 {
			if spec.Extra == nil {
				spec.Extra = map[string]certificatesv1.ExtraValue{}
			}
			spec.Extra[key] = certificatesv1.ExtraValue{signing.KeepName(values[0])}
		}
	}
	return small
}
