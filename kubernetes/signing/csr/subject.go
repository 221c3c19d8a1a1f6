package csr

import (
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/countersign-dev/countersign/ra"
)

// How the API server names service accounts and nodes, and the groups that they are in
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication).
const (
	accountPrefix = "system:serviceaccount:"
	accountGroup  = "system:serviceaccounts:" // and the namespace
	nodePrefix    = "system:node:"
	nodeGroup     = "system:nodes"
	anonymous     = "system:anonymous"
	nobodysGroup  = "system:unauthenticated"
)

// What the API server adds about a service account's token that is bound to a pod.
const (
	extraPod     = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
	extraNode    = "authentication.kubernetes.io/node-name"
	extraNodeUID = "authentication.kubernetes.io/node-uid"
)

// SubjectOf returns who made a request, by the fields of the spec that the API server sets itself
// and no client can change: a service account (system:serviceaccount:NAMESPACE:NAME), a node
// (system:node:NAME), or a user. A service account's and a node's name count only together with
// the group that the API server puts it in.
//
// A token that is bound to a pod also names the pod and its node (spec.extra). The API server has
// verified them, and impersonating them takes the right to impersonate userextras under the very
// key, next to the service account.
func SubjectOf(cluster string, spec *certificatesv1.CertificateSigningRequestSpec) (ra.Subject, error) {
	s := ra.Subject{Kind: ra.User, Cluster: cluster, Verified: "certificate signing request"}
	account, isAccount := strings.CutPrefix(spec.Username, accountPrefix)
	node, isNode := strings.CutPrefix(spec.Username, nodePrefix)
	switch {
	case spec.Username == "" || spec.Username == anonymous || slices.Contains(spec.Groups, nobodysGroup):
		return s, fmt.Errorf("the requester %.256q is not authenticated", spec.Username)
	case isAccount:
		return accountOf(s, account, spec)
	case isNode:
		if len(validation.IsDNS1123Subdomain(node)) > 0 || !slices.Contains(spec.Groups, nodeGroup) {
			return s, fmt.Errorf("the requester %.256q is not a node: it is not in the group %s", spec.Username, nodeGroup)
		}
		s.Kind, s.Node = ra.Node, node
	default:
		s.User = spec.Username
	}
	return s, nil
}

func accountOf(s ra.Subject, account string, spec *certificatesv1.CertificateSigningRequestSpec) (ra.Subject, error) {
	namespace, name, _ := strings.Cut(account, ":")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 || !slices.Contains(spec.Groups, accountGroup+namespace) {
		return s, fmt.Errorf("the requester %.256q is not a service account: it is not in the group %s and its namespace", spec.Username, accountGroup)
	}
	s.Kind, s.Namespace, s.ServiceAccount, s.ServiceAccountUID = ra.ServiceAccount, namespace, name, spec.UID
	s.Pod, s.PodUID = pair(spec, extraPod, extraPodUID)
	s.Node, s.NodeUID = pair(spec, extraNode, extraNodeUID)
	return s, nil
}

// owner returns the group of requests that share turns and calls of the API server: those of all
// service accounts of the requester's namespace, else the requester's own.
func owner(r *request) string {
	account, isAccount := strings.CutPrefix(r.Spec.Username, accountPrefix)
	if !isAccount {
		return r.Spec.Username
	}
	namespace, _, _ := strings.Cut(account, ":")
	return accountGroup + namespace
}

// pair returns two extra values that count only together.
func pair(spec *certificatesv1.CertificateSigningRequestSpec, name, uid string) (string, string) {
	names, uids := spec.Extra[name], spec.Extra[uid]
	if len(names) != 1 || len(uids) != 1 || names[0] == "" || uids[0] == "" {
		return "", ""
	}
	return names[0], uids[0]
}
