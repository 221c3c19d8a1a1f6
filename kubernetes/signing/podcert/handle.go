package podcert

import (
	"context"
	"encoding/pem"
	"errors"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// defaultSeconds is the API server's default lifetime of a request.
const defaultSeconds = 86400

// handle works on one request and returns when to come back to it.
func (d *Door) handle(ctx context.Context, r *request) time.Duration {
	o, cert, err := d.issue(ctx, r)
	if err == nil {
		err = d.deliver(ctx, r, o, cert)
	}
	if no, final := signing.Refused(err); final {
		err = d.refuse(ctx, r, no)
	}
	switch {
	case err == nil:
		return signing.Over // whatever a late informer may show of it
	case ctx.Err() != nil:
		return 0 // deleted, or no longer ours to decide
	}
	return d.cfg.Pending(r.Namespace+"/"+r.Name, r.Spec.SignerName, err, 0)
}

// issue returns a certificate, a refusal, which is recorded, or an error that leaves the request
// pending.
func (d *Door) issue(ctx context.Context, r *request) (o *ra.Order, cert ra.Certificate, err error) {
	req, err := d.verified(ctx, r)
	if err != nil {
		if no, final := signing.Refused(err); final {
			req.Subject.Verified = "" // the request's own claim
			d.cfg.Issuer.Refuse(ctx, req, no)
		}
		return nil, cert, err
	}
	if o, err = d.cfg.Issuer.Prepare(ctx, req); err == nil {
		cert, err = d.gates[r.Spec.SignerName].Issue(ctx, d.cfg.Issuer, r.Namespace, o, d.dryRun(r))
	}
	if err == nil || errors.Is(err, signing.ErrShut) {
		return o, cert, err
	}
	out := signing.OutcomeOf(err)
	if !out.Final {
		return nil, cert, &signing.PendingError{Again: out.Again, Err: err, Quiet: true} // the engine logs and audits it
	}
	if err := d.verify(ctx, r, true); err != nil {
		return nil, cert, err
	}
	return nil, cert, final(out, ca.ReasonFor(err))
}

// verified returns what the engine is asked for, once the request is found to be right.
func (d *Door) verified(ctx context.Context, r *request) (ra.Request, error) {
	req := d.asked(r)
	var err error
	if req.DNSNames, err = judge(r); err != nil {
		return req, err
	}
	if err := d.gates[r.Spec.SignerName].Check(r.Namespace); err != nil { // before the lookups, but a trial is for one who passed them
		return req, err
	}
	return req, d.verify(ctx, r, false)
}

// final words what the engine refused.
func final(out signing.Outcome, reason ca.Reason) error {
	switch {
	case out.KeyType:
		return denied(reasonKeyType, "%s; change keyType of the pod's podCertificate volume", out.Message)
	case out.Names && reason == ca.Denied: // names in the CSR are the kubelet's
		return denied(reasonAnnotations, "%s; change it in userAnnotations of the pod's podCertificate volume, under %s", out.Message, AnnotationDNSNames)
	case reason == ca.Denied:
		return denied(reasonPolicy, "the policy for this signer does not grant the pod a certificate: %s", out.Message)
	}
	return failed("%s", out.Message)
}

// asked is what the engine is asked for, but for the names.
func (d *Door) asked(r *request) ra.Request {
	seconds := int32(defaultSeconds)
	if r.Spec.MaxExpirationSeconds != nil {
		seconds = *r.Spec.MaxExpirationSeconds
	}
	return ra.Request{
		Subject: ra.Subject{
			Kind: ra.Pod, Cluster: d.cfg.Cluster, Namespace: r.Namespace,
			ServiceAccount: r.Spec.ServiceAccountName, ServiceAccountUID: string(r.Spec.ServiceAccountUID),
			Pod: r.Spec.PodName, PodUID: string(r.Spec.PodUID),
			Node: string(r.Spec.NodeName), NodeUID: string(r.Spec.NodeUID),
			Verified: "pod certificate request",
		},
		Door: signing.PodDoor(r.Spec.SignerName).Name,
		CSR:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r.Spec.StubPKCS10Request}),
		TTL:  time.Duration(seconds) * time.Second, Object: string(r.UID), Asked: r.CreationTimestamp.Time,
	}
}

func (d *Door) observe(r *request, result string) {
	d.cfg.Observe(signing.Event{Signer: r.Spec.SignerName, Result: result})
}
