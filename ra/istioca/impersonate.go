package istioca

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// impersonated returns the account that a node proxy asks for, if it may ask for any.
func (s *Server) impersonated(who caller, name string) (ra.Subject, *fault) {
	if why := s.mayNot(who); why != "" {
		return ra.Subject{}, denied("%s", why).because(fmt.Errorf("it asks for %.128q", name))
	}
	asked, err := authn.OfSPIFFEID(name)
	if err != nil || asked.Namespace == "" {
		return ra.Subject{}, malformed("%s %.128q is not of the form spiffe://DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT", impersonatedKey, name)
	}
	return ra.Subject{
		Kind: ra.ServiceAccount, Cluster: who.Cluster, Namespace: asked.Namespace, ServiceAccount: asked.ServiceAccount, Node: who.Node,
		Verified: "node proxy with the pod UID " + who.PodUID,
	}, nil
}

// mayImpersonate returns why a node proxy may not have what the policy gives a service account. The
// API server is asked last.
func (s *Server) mayImpersonate(ctx context.Context, who caller, o *ra.Order, name string) *fault {
	if granted := o.Decision().Identity; !isExactly(granted, name) {
		return denied("the policy gives that service account of cluster %.64q the name %.128q, not %.128q", who.Cluster, granted.String(), name)
	}
	switch err := s.onNode(ctx, who, accountOf(o.Subject)); {
	case errors.Is(err, ErrNoPod):
		return denied("no pod of that service account runs on the node of the caller").because(err)
	case err != nil:
		return faultf(CannotVerify, codes.Unavailable, "the pods on the node cannot be looked up at the moment; retry later").because(err)
	}
	return nil
}

// mayNot returns why a caller may not ask for other identities.
func (s *Server) mayNot(who caller) string {
	proxies := s.callers.Load().NodeProxies
	switch {
	case len(proxies) == 0:
		return "no node proxies are configured, so no caller may request the certificate of another"
	case who.kind != authn.ByTokenReview:
		return "only a caller whose token an API server reviewed may ask for another's certificate"
	case !slices.Contains(proxies, accountOf(who.Subject)):
		return "the caller's service account is not a configured node proxy"
	case !who.alive:
		return "the caller's token is not bound to a pod, so its node is unknown"
	}
	return ""
}

// isExactly reports whether the policy gives that SPIFFE ID: the proxy would refuse a
// certificate for another, and its trust domain is the one of its cluster's rule.
func isExactly(granted pki.Identity, name string) bool {
	return granted.SPIFFEID != nil && granted.SPIFFEID.String() == name
}

func denied(format string, args ...any) *fault {
	return faultf(Denied, codes.PermissionDenied, format, args...)
}
