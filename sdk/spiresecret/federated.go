package spiresecret

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	idPrefix   = "spiffe://"
	maxDomains = 1000 // trust domains served from one reply
)

// takeDomains serves the trust bundle of each trust domain in a reply. A domain that is no longer
// in it is unknown; one whose bundle cannot be used keeps the bundle before. A reply without an
// X.509-SVID, and so without the workload's own bundle, changes nothing, as for the other secrets.
func (s *Source) takeDomains(reply *workloadv1.X509SVIDResponse) {
	if !s.config.Federated || len(reply.GetSvids()) == 0 {
		return
	}
	found := domainsOf(reply)
	s.mu.Lock()
	gone := slices.DeleteFunc(slices.Clone(s.domains), func(id string) bool { return found[id] != nil })
	s.mu.Unlock()
	for _, id := range gone {
		s.bundles.Delete(id)
	}
	var ids []string
	for id, der := range found {
		s.takeDomain(id, der, s.config.Now())
		ids = append(ids, id)
	}
	slices.Sort(ids)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.domains = ids
}

func (s *Source) takeDomain(id string, der []byte, now time.Time) {
	roots, _, err := readRoots(der, now)
	if err != nil {
		s.config.Log.Warn("cannot use the trust bundle that the Workload API sends, keeping the one before", "trust_domain", text.Clean(id), "error", text.Clean(err.Error()))
		return
	}
	item := secret.NewTrustBundle(id, AuthorityName, roots)
	item.Issued = now
	s.bundles.Set(id, item)
}

// domainsOf returns the bundles of a reply (DER) by the ID of their trust domain: those of the
// X.509-SVIDs, which take precedence, and the federated ones, by name.
func domainsOf(reply *workloadv1.X509SVIDResponse) map[string][]byte {
	found := map[string][]byte{}
	add := func(domain string, der []byte) {
		if pki.CheckTrustDomain(domain) == nil && len(found) < maxDomains && found[idPrefix+domain] == nil {
			found[idPrefix+domain] = append([]byte{}, der...)
		}
	}
	for _, svid := range reply.GetSvids() {
		domain, _, _ := strings.Cut(strings.TrimPrefix(svid.GetSpiffeId(), idPrefix), "/")
		add(domain, svid.GetBundle())
	}
	for _, id := range slices.Sorted(maps.Keys(reply.GetFederatedBundles())) {
		if domain, ok := strings.CutPrefix(id, idPrefix); ok {
			add(domain, reply.GetFederatedBundles()[id])
		}
	}
	return found
}

// Federated returns the trust domains whose bundles are served, the workload's own among them,
// sorted; nil without [Config].Federated. The bundle of "example.com" is served as
// "spiffe://example.com".
func (s *Source) Federated() []string {
	if !s.config.Federated {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []string{}
	for _, id := range s.domains {
		all = append(all, strings.TrimPrefix(id, idPrefix))
	}
	return all
}

func (s *Source) peekDomain(caller secret.Caller, name string) (*secret.Item, error) {
	if s.hasEnded() {
		return nil, secret.ErrClosed
	}
	return s.bundles.Peek(caller, name)
}

func (s *Source) watchDomain(caller secret.Caller, name string, notify func(string)) (stop func(), err error) {
	if s.hasEnded() {
		return nil, secret.ErrClosed
	}
	return s.bundles.Watch(caller, name, notify)
}

func (s *Source) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// isDomain reports whether a name is one that only Federated serves.
func (s *Source) isDomain(name string) bool {
	return s.config.Federated && s.byName[name] == nil && strings.HasPrefix(name, idPrefix)
}
