package workloadapi

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// view is all that a caller gets, as it is held now.
type view struct {
	identities []held
	federated  map[string]*document // by the SPIFFE ID of the trust domain
	// waits: the caller's default identity is not held yet. Without it nothing is
	// sent, or the next in the list would be taken for the default.
	waits bool
}

// held is an identity with what is held for it.
type held struct {
	Identity
	pair, roots *document
}

// errPending: it is configured for the caller and not held yet.
var errPending = errors.New("pending")

// look returns what the caller gets, or the status that ends its stream.
func (s *Service) look(caller secret.Caller) (view, error) {
	v := view{federated: make(map[string]*document)}
	known := 0
	for _, identity := range s.offer.Identities {
		h, err := s.hold(caller, identity)
		switch {
		case err == nil:
			v.identities = append(v.identities, h)
			known++
		case errors.Is(err, errPending):
			v.waits = v.waits || known == 0
			known++
		case !errors.Is(err, secret.ErrUnknown):
			return v, err
		}
	}
	if known == 0 {
		return v, status.Error(codes.PermissionDenied, "no identity is configured for this caller")
	}
	return v, s.federate(caller, v.federated)
}

// hold looks at the certificate first: the roots that it needs are there before it.
func (s *Service) hold(caller secret.Caller, identity Identity) (h held, err error) {
	h.Identity = identity
	if h.pair, err = s.document(caller, identity.Certificate, secret.KeyPair); err != nil {
		return h, err
	}
	h.roots, err = s.document(caller, identity.Roots, secret.TrustBundle)
	return h, err
}

// federate adds the bundles of foreign trust domains that are held.
func (s *Service) federate(caller secret.Caller, bundles map[string]*document) error {
	for _, domain := range s.foreign {
		roots, err := s.document(caller, s.offer.Federated[domain], secret.TrustBundle)
		switch {
		case err == nil:
			bundles["spiffe://"+domain] = roots
		case !errors.Is(err, errPending) && !errors.Is(err, secret.ErrUnknown):
			return err
		}
	}
	return nil
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

// svidsVersion stands for the content of svids.
func (v view) svidsVersion() string {
	var text strings.Builder
	for _, h := range v.identities {
		text.WriteString(h.Certificate + "\x00" + h.pair.version + "\x00")
	}
	return text.String() + v.bundlesVersion()
}

// bundlesVersion stands for the content of bundles.
func (v view) bundlesVersion() string {
	var text strings.Builder
	for _, h := range v.identities {
		text.WriteString(h.pair.domain + "\x00" + h.roots.version + "\x00")
	}
	for _, domain := range slices.Sorted(maps.Keys(v.federated)) {
		text.WriteString(domain + "\x00" + v.federated[domain].version + "\x00")
	}
	return text.String()
}

func (v view) svids() *workloadv1.X509SVIDResponse {
	out := &workloadv1.X509SVIDResponse{FederatedBundles: make(map[string][]byte, len(v.federated))}
	for _, h := range v.identities {
		out.Svids = append(out.Svids, &workloadv1.X509SVID{
			SpiffeId: h.pair.id, X509Svid: h.pair.certs, X509SvidKey: h.pair.key, Bundle: h.roots.certs, Hint: h.Hint,
		})
	}
	for domain, roots := range v.federated {
		out.FederatedBundles[domain] = roots.certs
	}
	// A trust domain of the caller's own is none that is foreign to it.
	for _, h := range v.identities {
		delete(out.FederatedBundles, h.pair.domain)
	}
	return out
}

func (v view) bundles() *workloadv1.X509BundlesResponse {
	out := &workloadv1.X509BundlesResponse{Bundles: make(map[string][]byte, len(v.federated)+1)}
	for domain, roots := range v.federated {
		out.Bundles[domain] = roots.certs
	}
	own := make(map[string]*document)
	for _, h := range v.identities {
		// Of two identities of one trust domain the first one's roots are sent.
		if own[h.pair.domain] == nil {
			own[h.pair.domain] = h.roots
			out.Bundles[h.pair.domain] = h.roots.certs
		}
	}
	return out
}
