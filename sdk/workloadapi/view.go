package workloadapi

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// view is everything a caller currently gets.
type view struct {
	identities []liveIdentity
	bundles    []ownBundle          // of the identities' trust domains
	federated  map[string]*document // by the SPIFFE ID of the trust domain
	foreign    []string             // federated trust domains, with roots or without
	// waits means that the caller's default identity is not available yet. No identity is
	// sent until it is, since the client would take the next one for the default; rootsWait
	// is the same for its roots.
	waits, rootsWait bool
	// pending means that some identity of the caller is not available yet.
	pending bool
	wits    []liveWIT // of a stream of WIT-SVIDs
	// ends is when the first of the certificates or WIT-SVIDs expires; zero without any.
	ends time.Time
}

// liveIdentity is an identity with its current documents.
type liveIdentity struct {
	Identity
	pair, roots *document
}

// ownBundle is the roots of a trust domain, a SPIFFE ID.
type ownBundle struct {
	domain string
	roots  *document
}

// errPending means that the secret is configured for the caller but not available yet.
var errPending = errors.New("pending")

// look returns the caller's view, or the status that ends its stream.
func (s *Service) look(caller secret.Caller) (view, error) {
	v := view{federated: make(map[string]*document)}
	known := 0
	for _, identity := range s.offer.Identities {
		h, err := s.hold(caller, identity)
		switch {
		case err == nil:
			v.identities = append(v.identities, h)
			v.bundles = append(v.bundles, ownBundle{h.pair.domain, h.roots})
			v.ends = earlier(v.ends, h.pair.ends)
			known++
		case errors.Is(err, errPending):
			v.waits, v.pending = v.waits || known == 0, true
			if h.roots != nil && identity.TrustDomain != "" {
				v.bundles = append(v.bundles, ownBundle{"spiffe://" + identity.TrustDomain, h.roots})
			} else {
				v.rootsWait = v.rootsWait || known == 0
			}
			known++
		case !errors.Is(err, secret.ErrUnknown):
			return v, err
		}
	}
	if known == 0 {
		return v, status.Error(codes.PermissionDenied, "no identity is configured for this caller")
	}
	var err error
	v.foreign, err = s.federate(caller, v.federated)
	return v, err
}

// earlier returns the earlier of two times; zero stands for none. A certificate is valid until
// the end of its last second.
func earlier(a, b time.Time) time.Time {
	if b = b.Add(time.Second); a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// hold looks up the certificate first: the roots it needs are available before it. With
// errPending, the roots may be there.
func (s *Service) hold(caller secret.Caller, identity Identity) (h liveIdentity, err error) {
	h.Identity = identity
	if h.pair, err = s.document(caller, identity.Certificate, secret.KeyPair); err != nil && !errors.Is(err, errPending) {
		return h, err
	}
	roots, missing := s.document(caller, identity.Roots, secret.TrustBundle)
	h.roots = roots
	return h, cmp.Or(err, missing)
}

// federate adds the available bundles of foreign trust domains, and returns those that the caller
// may know of.
func (s *Service) federate(caller secret.Caller, bundles map[string]*document) (domains []string, err error) {
	for _, domain := range s.foreign {
		roots, err := s.document(caller, s.offer.Federated[domain], secret.TrustBundle)
		switch {
		case err == nil:
			bundles["spiffe://"+domain] = roots
			domains = append(domains, domain)
		case errors.Is(err, errPending):
			domains = append(domains, domain)
		case !errors.Is(err, secret.ErrUnknown):
			return nil, err
		}
	}
	return domains, nil
}

// document returns a secret, or ErrUnknown, errPending, or a status error.
func (s *Service) document(caller secret.Caller, name string, kind secret.Kind) (*document, error) {
	item, err := s.secrets.Peek(caller, name)
	switch {
	case errors.Is(err, secret.ErrUnknown):
		return nil, secret.ErrUnknown
	case errors.Is(err, secret.ErrNotReady):
		return nil, errPending
	case err != nil:
		return nil, status.Error(codes.Unavailable, "secrets are not to be had at the moment")
	case item.Kind != kind:
		return nil, secret.ErrUnknown
	}
	made, first := s.documents.of(item)
	if made.err != nil {
		if first {
			s.log.Warn("secret omitted from the Workload API", "secret", name, "error", made.err)
		}
		return nil, secret.ErrUnknown
	}
	return made.document, nil
}

// svidsVersion identifies the content of svids; empty while it must not be sent.
func (v view) svidsVersion() string {
	if v.waits {
		return ""
	}
	var text strings.Builder
	for _, h := range v.identities {
		text.WriteString(h.Certificate + "\x00" + h.pair.version + "\x00")
	}
	for _, h := range v.identities {
		text.WriteString(h.pair.domain + "\x00" + h.roots.version + "\x00")
	}
	return text.String() + v.federatedVersion()
}

// bundlesVersion identifies the content of x509Bundles; empty while it must not be sent.
func (v view) bundlesVersion() string {
	if v.rootsWait {
		return ""
	}
	var text strings.Builder
	for _, b := range v.bundles {
		text.WriteString(b.domain + "\x00" + b.roots.version + "\x00")
	}
	return text.String() + v.federatedVersion()
}

// domainsVersion identifies the caller's own trust domains; empty while it must not be sent.
func (v view) domainsVersion() string {
	if v.rootsWait {
		return ""
	}
	var text strings.Builder
	for _, b := range v.bundles {
		text.WriteString("\x00" + b.domain)
	}
	return text.String()
}

// hasForeignRoots reports whether no bundle of a federated trust domain is still to come. Of the
// caller's own, the reply has its own roots.
func (v view) hasForeignRoots() bool {
	return !slices.ContainsFunc(v.foreign, func(domain string) bool {
		return v.federated["spiffe://"+domain] == nil && !v.owns(domain)
	})
}

// owns reports whether a trust domain is that of an identity which the caller has.
func (v view) owns(domain string) bool {
	return slices.ContainsFunc(v.identities, func(h liveIdentity) bool { return h.pair.domain == "spiffe://"+domain })
}

func (v view) federatedVersion() string {
	var text strings.Builder
	for _, domain := range slices.Sorted(maps.Keys(v.federated)) {
		text.WriteString(domain + "\x00" + v.federated[domain].version + "\x00")
	}
	return text.String()
}

func (v view) svids() *workloadv1.X509SVIDResponse {
	out := &workloadv1.X509SVIDResponse{Crl: v.crls(), FederatedBundles: make(map[string][]byte, len(v.federated))}
	for _, h := range v.identities {
		out.Svids = append(out.Svids, &workloadv1.X509SVID{
			SpiffeId: h.pair.id, X509Svid: h.pair.certs, X509SvidKey: h.pair.key, Bundle: h.roots.certs, Hint: h.Hint,
		})
	}
	for domain, roots := range v.federated {
		out.FederatedBundles[domain] = roots.certs
	}
	// The caller's own trust domains are not foreign to it.
	for _, h := range v.identities {
		delete(out.FederatedBundles, h.pair.domain)
	}
	return out
}

func (v view) x509Bundles() *workloadv1.X509BundlesResponse {
	out := &workloadv1.X509BundlesResponse{Crl: v.crls(), Bundles: make(map[string][]byte, len(v.federated)+1)}
	for domain, roots := range v.federated {
		out.Bundles[domain] = roots.certs
	}
	// If two identities share a trust domain, the roots of the first are sent.
	for _, b := range slices.Backward(v.bundles) {
		out.Bundles[b.domain] = b.roots.certs
	}
	return out
}

// crls returns the revocation lists of all bundles, each once. The protocol does not say which bundle
// a list is for: the client finds its CA by name and signature.
func (v view) crls() (all [][]byte) {
	seen := make(map[string]bool)
	take := func(roots *document) {
		for _, list := range roots.crls {
			if !seen[string(list)] {
				seen[string(list)], all = true, append(all, list)
			}
		}
	}
	for _, b := range v.bundles {
		take(b.roots)
	}
	for _, domain := range slices.Sorted(maps.Keys(v.federated)) {
		take(v.federated[domain])
	}
	return all
}
