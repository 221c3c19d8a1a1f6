package secrets

import (
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// anyone is the wildcard.
const anyone = "*"

// Who selects callers by verified attributes. Each field is required; "*" matches any.
type Who struct {
	// TrustDomain of the SPIFFE ID; a caller without one matches only "*".
	TrustDomain string
	Cluster     string
	// Namespace and ServiceAccount are Kubernetes names.
	Namespace, ServiceAccount string
}

// Grant lets callers get secrets of another namespace by kubernetes-gateway:// names,
// in the clusters they are served from. They still need the right to list secrets in
// their own namespace.
type Grant struct {
	To Who
	// Namespace is the other namespace. Required, and never "*".
	Namespace string
	// Names lists the secrets, which include their CAs; "*" is the whole namespace.
	// Required.
	Names []string
}

func (g Grant) check() error {
	switch to := g.To; {
	case to.TrustDomain == "" || to.Cluster == "" || to.Namespace == "" || to.ServiceAccount == "":
		return errors.New(`field To needs a trust domain, a cluster, a namespace and a service account; "*" matches any`)
	case to.TrustDomain != anyone && pki.CheckTrustDomain(to.TrustDomain) != nil:
		return pki.CheckTrustDomain(to.TrustDomain)
	case to.Namespace != anyone && !isNamespace(to.Namespace):
		return fmt.Errorf("field To.Namespace %.256q is not a namespace name", to.Namespace)
	case to.ServiceAccount != anyone && !isObject(to.ServiceAccount):
		return fmt.Errorf("field To.ServiceAccount %.256q is not a service account name", to.ServiceAccount)
	case !isNamespace(g.Namespace):
		return fmt.Errorf("field Namespace %.256q is not a namespace name; write one grant per namespace", g.Namespace)
	case len(g.Names) == 0:
		return errors.New(`the field Names is empty: it lists the secrets that are granted; "*" is all of the namespace`)
	}
	for _, name := range g.Names {
		if name != anyone && !isObject(name) {
			return fmt.Errorf("field Names contains %.256q, which is not a secret name", name)
		}
	}
	return nil
}

// granted reports whether a grant gives caller what r names.
func (s *Source) granted(caller *discovery.Caller, r ref) bool {
	return slices.ContainsFunc(s.cfg.Grants, func(g Grant) bool {
		return g.Namespace == r.namespace && g.To.includes(caller) && g.names(r)
	})
}

func (g Grant) names(r ref) bool {
	return slices.ContainsFunc(g.Names, func(name string) bool {
		return name == anyone || slices.Contains(r.objects(), name)
	})
}

func (w Who) includes(caller *discovery.Caller) bool {
	id := caller.Identity
	return fits(w.Cluster, caller.Cluster) && fits(w.Namespace, id.Namespace) &&
		fits(w.ServiceAccount, id.ServiceAccount) && (w.TrustDomain == anyone || w.TrustDomain == trustDomain(id.SPIFFEID))
}

func fits(wanted, is string) bool { return wanted == anyone || wanted == is }

// trustDomain returns the trust domain of a SPIFFE ID, or "" for anything else.
func trustDomain(id string) string {
	parsed, err := pki.ParseSPIFFEID(id)
	if err != nil {
		return ""
	}
	return parsed.Host
}
