package pods

import (
	"context"
	"net/http"
	"strings"

	api "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
)

// wanted is a reference: a key, a UID, or both.
type wanted struct {
	key
	uid string
}

// Resolve implements [broker.Resolver].
func (p *Pods) Resolve(ctx context.Context, reference *anypb.Any, ended func(error)) (broker.Workload, error) {
	w, err := read(reference)
	if err != nil {
		return broker.Workload{}, err
	}
	one, release, err := p.hold(ctx, w, ended)
	if err != nil {
		return broker.Workload{}, err
	}
	id, err := p.cfg.Identify(one.Pod)
	if err != nil {
		release()
		return broker.Workload{}, broker.Refuse(broker.WorkloadNotEntitled, "%s has no identity: %v", one.Pod, err)
	}
	return broker.Workload{SPIFFEID: id, Name: one.String(), Check: func() error { return p.check(one) }, Release: release}, nil
}

// read validates a reference (SPIFFE Broker API, section 4).
func read(reference *anypb.Any) (w wanted, err error) {
	var in api.KubernetesObjectReference
	if err := reference.UnmarshalTo(&in); err != nil {
		return w, broker.Refuse(broker.ReferenceInvalid, "the reference is not a KubernetesObjectReference")
	}
	kind, at := in.GetType(), in.GetKey()
	switch {
	case kind.GetPlural() != "pods" || kind.GetGroup() != "core":
		return w, broker.Refuse(broker.ReferenceInvalid, "unsupported type of object %.64q in the group %.64q; this agent resolves pods of the group core", kind.GetPlural(), kind.GetGroup())
	case at == nil && in.GetUid() == "":
		return w, broker.Refuse(broker.ReferenceInvalid, "the reference has neither a key nor a UID")
	case at != nil && (at.GetNamespace() == "" || at.GetName() == ""):
		return w, broker.Refuse(broker.ReferenceInvalid, "the key of a pod needs a namespace and a name")
	}
	return wanted{key{at.GetNamespace(), at.GetName()}, strings.ToLower(in.GetUid())}, nil
}

// hold finds a pod and has its end reported until release.
func (p *Pods) hold(ctx context.Context, w wanted, ended func(error)) (one *known, release func(), err error) {
	within, cancel := context.WithTimeout(ctx, lag)
	defer cancel()
	for {
		p.mu.Lock()
		one := p.find(w)
		listed, away, changed := p.listed, p.away, p.changed
		if one != nil {
			release = one.watchers.Add(ended)
		}
		p.mu.Unlock()
		switch {
		case one != nil && away:
			return p.confirm(within, one, release)
		case one != nil:
			return one, release, nil
		}
		select {
		case <-changed:
		case <-within.Done():
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			if !listed || away {
				return nil, nil, ca.Errorf(ca.Unavailable, "the pods are not known at the moment")
			}
			return nil, nil, p.missing(w)
		}
	}
}

// find returns the pod of a reference, or nil. The caller holds the lock.
func (p *Pods) find(w wanted) *known {
	if w.name == "" {
		return p.byUID[w.uid]
	}
	one := p.byKey[w.key]
	if one != nil && w.uid != "" && one.UID != w.uid {
		return nil
	}
	return one
}

// missing refuses a reference that no pod fits.
func (p *Pods) missing(w wanted) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.byKey[w.key] != nil:
		return broker.Refuse(broker.WorkloadNotFound, "pod %s/%s has another UID", w.namespace, w.name)
	case p.cfg.Node == "":
		return broker.Refuse(broker.WorkloadNotFound, "no such running pod")
	}
	return broker.Refuse(broker.WorkloadNotFound, "no such running pod on the node %s", p.cfg.Node)
}

// confirm asks the API server whether a pod is still there, as the watch has failed.
func (p *Pods) confirm(ctx context.Context, one *known, release func()) (*known, func(), error) {
	var got object
	path := "/api/v1/namespaces/" + one.Namespace + "/pods/" + one.Name
	err := p.cfg.Client.Do(ctx, kubeapi.Call{Path: path}, &got)
	switch pod, runs := got.pod(p.cfg.Node); {
	case kubeapi.Answered(err, http.StatusNotFound), err == nil && (!runs || pod != one.Pod):
		err = over(one)
	case err != nil: // whatever limit it is, it is not the broker's
		err = ca.Errorf(ca.Unavailable, "failed to confirm %s: %w", one.Pod, err)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return one, release, nil
}

// check returns an error if a pod has ended.
func (p *Pods) check(one *known) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byUID[one.UID] != one {
		return over(one)
	}
	return nil
}

func over(one *known) error { return broker.Refuse(broker.WorkloadNotFound, "%s has ended", one.Pod) }

var _ broker.Resolver = (*Pods)(nil)
