package secrets

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/access"
	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Reason is why a resource was refused, one word that fits a metric.
type Reason string

// The reasons.
const (
	BadName    Reason = "name"      // it is none of the names that are known here
	NoIdentity Reason = "identity"  // the caller has no service account, or no cluster
	Foreign    Reason = "namespace" // it is another namespace's, and not granted
	NoRight    Reason = "rights"    // the caller may not list secrets in its namespace
	NoCluster  Reason = "cluster"   // the caller's cluster is not connected
	Missing    Reason = "missing"   // there is no such object
	Malformed  Reason = "malformed" // the object has not what is needed
)

// Reasons are all of them.
var Reasons = [...]Reason{BadName, NoIdentity, Foreign, NoRight, NoCluster, Missing, Malformed}

// refusal is a resource that a caller does not have; to the stream it is unknown.
type refusal struct {
	reason Reason
	detail string
}

func (r *refusal) Error() string { return r.detail }

func (r *refusal) Unwrap() error { return xds.ErrUnknown }

// request is what a caller asks for, once it is clear that the caller may ask.
type request struct {
	ref             // with its namespace
	name     string // of the resource, whole
	subject  access.Subject
	clusters []string // in the order in which they are looked in
}

// admit holds a name to what was verified of the caller. What it refuses, it refuses for
// as long as the stream lives.
func (s *Source) admit(caller *discovery.Caller, name string) (request, error) {
	parsed, err := parse(name)
	if err != nil {
		return request{}, &refusal{BadName, err.Error()}
	}
	if !isWhole(caller) {
		return request{}, &refusal{NoIdentity, "a verified namespace, service account and cluster are needed"}
	}
	own := caller.Identity.Namespace
	if parsed.namespace == "" {
		parsed.namespace = own
	}
	if parsed.namespace != own && !s.mayCross(caller, parsed) {
		return request{}, &refusal{Foreign, fmt.Sprintf("the caller is of the namespace %q", own)}
	}
	return request{
		ref: parsed, name: name, clusters: s.clustersOf(caller),
		subject: access.Subject{Cluster: caller.Cluster, Namespace: own, ServiceAccount: caller.Identity.ServiceAccount},
	}, nil
}

// isWhole tells whether it was verified who the caller is and where. A cluster's API
// server speaks for no other cluster.
func isWhole(caller *discovery.Caller) bool {
	if caller == nil || caller.Cluster == "" {
		return false
	}
	id := caller.Identity
	return isNamespace(id.Namespace) && isObject(id.ServiceAccount) && (id.Cluster == "" || id.Cluster == caller.Cluster)
}

// mayCross tells whether a caller may have something of another namespace. CAs in config
// maps are public.
func (s *Source) mayCross(caller *discovery.Caller, r ref) bool {
	switch r.scheme {
	case configMapScheme:
		return true
	case gatewayScheme:
		return s.granted(caller, r)
	}
	return false
}

// clustersOf are the caller's own and, where that may read there, the config cluster.
func (s *Source) clustersOf(caller *discovery.Caller) []string {
	if caller.Cluster != s.local && (s.may[anyone] || s.may[caller.Cluster]) {
		return []string{caller.Cluster, s.local}
	}
	return []string{caller.Cluster}
}

// authorise asks for the right to have a key.
func (s *Source) authorise(r request) error {
	if r.ca {
		return nil
	}
	err := s.cfg.Access.Peek(r.subject)
	switch {
	case errors.Is(err, access.ErrNotReady):
		return xds.ErrNotReady
	case err != nil:
		return &refusal{NoRight, err.Error()}
	}
	return nil
}
