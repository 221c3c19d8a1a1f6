package secrets

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Reason is why a resource was refused, one word that fits a metric.
type Reason string

// The reasons.
const (
	BadName    Reason = "name"      // not a known form of name
	NoIdentity Reason = "identity"  // the caller has no service account or no cluster
	Foreign    Reason = "namespace" // in another namespace, and not granted
	NoRight    Reason = "rights"    // the caller may not list secrets in its namespace
	NoCluster  Reason = "cluster"   // the caller's cluster was removed
	Missing    Reason = "missing"   // the object does not exist
	Malformed  Reason = "malformed" // the object lacks required content
)

// Reasons lists all reasons.
var Reasons = [...]Reason{BadName, NoIdentity, Foreign, NoRight, NoCluster, Missing, Malformed}

// refusal is why a caller does not get a resource; the stream sees it as unknown.
type refusal struct {
	reason Reason
	detail string
}

func (r *refusal) Error() string { return r.detail }

func (r *refusal) Unwrap() error { return xds.ErrUnknown }

// request is an admitted request of a caller.
type request struct {
	ref             // with its namespace
	name     string // full resource name
	subject  access.Subject
	clusters []string // in lookup order
}

// admit checks a name against the caller's verified identity. A refusal stands for the
// life of the stream.
func (s *Source) admit(caller *discovery.Caller, name string) (request, error) {
	parsed, err := parse(name)
	if err != nil {
		return request{}, &refusal{BadName, err.Error()}
	}
	if !isWhole(caller) {
		return request{}, &refusal{NoIdentity, "the caller has no verified namespace, service account or cluster"}
	}
	own := caller.Identity.Namespace
	if parsed.namespace == "" {
		parsed.namespace = own
	}
	if parsed.namespace != own && !s.mayCross(caller, parsed) {
		return request{}, &refusal{Foreign, fmt.Sprintf("the caller is in namespace %q", own)}
	}
	return request{
		ref: parsed, name: name, clusters: s.clustersOf(caller),
		subject: access.Subject{Cluster: caller.Cluster, Namespace: own, ServiceAccount: caller.Identity.ServiceAccount},
	}, nil
}

// isWhole reports whether the caller's account and cluster are verified. A cluster's
// API server cannot vouch for another cluster.
func isWhole(caller *discovery.Caller) bool {
	if caller == nil || caller.Cluster == "" {
		return false
	}
	id := caller.Identity
	return isNamespace(id.Namespace) && isObject(id.ServiceAccount) && (id.Cluster == "" || id.Cluster == caller.Cluster)
}

// mayCross reports whether a caller may have an object of another namespace. CAs in
// config maps are public.
func (s *Source) mayCross(caller *discovery.Caller, r ref) bool {
	switch r.scheme {
	case configMapScheme:
		return true
	case gatewayScheme:
		return s.granted(caller, r)
	}
	return false
}

// clustersOf returns the caller's own cluster and, if that may read there, the config cluster.
func (s *Source) clustersOf(caller *discovery.Caller) []string {
	if caller.Cluster != s.local && (s.may[anyone] || s.may[caller.Cluster]) {
		return []string{caller.Cluster, s.local}
	}
	return []string{caller.Cluster}
}

// authorise checks the right to get a key.
func (s *Source) authorise(r request) error {
	if r.ca {
		return nil
	}
	err := s.cfg.Access.Peek(r.subject, r.name)
	switch {
	case errors.Is(err, access.ErrNotReady):
		return xds.ErrNotReady
	case err != nil:
		return &refusal{NoRight, err.Error()}
	}
	return nil
}
