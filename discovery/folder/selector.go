package folder

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder/internal/pattern"
	"github.com/countersign-dev/countersign/internal/suggest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// selector decides which callers get a file. Each key given must match with one of its
// entries. The zero value selects every admitted caller.
type selector struct {
	Anyone          bool              `json:"anyone,omitempty"`
	TrustDomains    []string          `json:"trust_domains,omitempty"`
	SPIFFEIDs       []string          `json:"spiffe_ids,omitempty"`
	Namespaces      []string          `json:"namespaces,omitempty"`
	ServiceAccounts []string          `json:"service_accounts,omitempty"`
	Clusters        []string          `json:"clusters,omitempty"`
	NodeIDs         []string          `json:"node_ids,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`

	text string // equal for equal selectors
}

var selectorKeys = []string{"anyone", "trust_domains", "spiffe_ids", "namespaces", "service_accounts", "clusters", "node_ids", "labels"}

// maxEntries limits the entries of one selector key: each is compared with each entry
// of every other file with the same resource.
const maxEntries = 1000

// parseSelector parses the value of "for:".
func parseSelector(tree any) (selector, error) {
	var s selector
	entries, ok := tree.(map[string]any)
	if !ok || len(entries) == 0 {
		return s, faultf("write the callers the file is for: one or more of %s; without \"for\" the file is for everyone", strings.Join(selectorKeys, ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if err := s.checkEntry(key, entries[key]); err != nil {
			return s, at(key, err)
		}
	}
	text, err := json.Marshal(tree)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, says(err)
	}
	return s.checked()
}

func (s selector) checkEntry(key string, value any) error {
	var ok bool
	want := "a list of text, not empty"
	switch {
	case !slices.Contains(selectorKeys, key):
		if meant := suggest.Word(key, selectorKeys); meant != "" {
			return faultf("unknown key; did you mean %q?", meant)
		}
		return faultf("unknown key; must be one of %s", strings.Join(selectorKeys, ", "))
	case key == "anyone":
		want, ok = "true", value == true
	case key == "labels":
		labels, isMap := value.(map[string]any)
		want, ok = "labels with text as their values, not empty", isMap && len(labels) > 0 && areText(maps.Values(labels))
	default:
		list, isList := value.([]any)
		ok = isList && len(list) > 0 && areText(slices.Values(list))
		if len(list) > maxEntries {
			return faultf("%d entries, more than %d; use * to match any text", len(list), maxEntries)
		}
	}
	if !ok {
		return faultf("unexpected %s; write %s", shown(value), want)
	}
	return nil
}

func areText(values func(func(any) bool)) bool {
	for value := range values {
		if text, ok := value.(string); !ok || text == "" {
			return false
		}
	}
	return true
}

// checked returns the normalized selector, or what is wrong with it.
func (s selector) checked() (selector, error) {
	for _, domain := range s.TrustDomains {
		if err := pki.CheckTrustDomain(domain); err != nil {
			return s, at("trust_domains", faultf("%.256q is not a trust domain; write it in full, such as example.org", domain))
		}
	}
	for _, id := range s.SPIFFEIDs {
		if _, err := pki.ParseSPIFFEID(strings.ReplaceAll(pathOnly(id), "*", "x")); err != nil {
			return s, at("spiffe_ids", faultf("%.256q is not a SPIFFE ID; write one like spiffe://example.org/ns/*/sa/gateway: * matches within one path segment, a final ** everything below", id))
		}
	}
	for _, account := range s.ServiceAccounts {
		if strings.Count(account, "/") != 1 {
			return s, at("service_accounts", faultf("%.256q is not a service account; write namespace/name, where * matches any text", account))
		}
	}
	if proven := s.proven(); s.Anyone == proven {
		return s, anyoneFault(proven)
	}
	text, err := json.Marshal(s) // sorted keys
	s.text = string(text)
	return s, err
}

// pathOnly rewrites a SPIFFE ID pattern so that * in the trust domain is rejected.
func pathOnly(id string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	if strings.Contains(domain, "*") {
		return ""
	}
	return id
}

// proven reports whether the selector requires something the caller has proven.
func (s selector) proven() bool {
	return len(s.TrustDomains)+len(s.SPIFFEIDs)+len(s.Namespaces)+len(s.ServiceAccounts)+len(s.Clusters) > 0
}

func anyoneFault(proven bool) error {
	if proven {
		return at("anyone", faultf("cannot be combined with keys that select callers; remove one"))
	}
	return faultf("node_ids and labels are unverified claims; also select callers by a verified attribute, or write \"anyone: true\"")
}

// matches reports whether the caller gets the file.
func (s selector) matches(c *discovery.Caller) bool {
	id := c.Identity
	account := ""
	if id.Namespace != "" {
		account = id.Namespace + "/" + id.ServiceAccount
	}
	return anyLike(s.TrustDomains, trustDomain(id.SPIFFEID), pattern.Like) &&
		anyLike(s.SPIFFEIDs, id.SPIFFEID, pattern.LikeParts) &&
		anyLike(s.Namespaces, id.Namespace, pattern.Like) &&
		anyLike(s.ServiceAccounts, account, pattern.LikeParts) &&
		anyLike(s.Clusters, c.Cluster, pattern.Like) &&
		anyLike(s.NodeIDs, c.Node.ID, pattern.Like) &&
		s.labelled(c.Node.Labels)
}

func (s selector) labelled(labels map[string]string) bool {
	for key, value := range s.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// anyLike reports whether one of the patterns matches text. Empty text, which the
// caller lacks, matches none.
func anyLike(patterns []string, text string, like func(pattern, text string) bool) bool {
	return len(patterns) == 0 || text != "" && slices.ContainsFunc(patterns, func(p string) bool { return like(p, text) })
}

func trustDomain(spiffeID string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(spiffeID, "spiffe://"), "/")
	return domain
}

// overlaps reports whether both selectors may match one caller. It may return true if
// there is none, the safe answer for two files with the same name.
func (s selector) overlaps(o selector) bool {
	return anyMeet(s.domains(), o.domains(), pattern.Meet) &&
		anyMeet(s.SPIFFEIDs, o.SPIFFEIDs, pattern.MeetParts) &&
		anyMeet(s.namespaces(), o.namespaces(), pattern.Meet) &&
		anyMeet(s.ServiceAccounts, o.ServiceAccounts, pattern.MeetParts) &&
		anyMeet(s.Clusters, o.Clusters, pattern.Meet) &&
		anyMeet(s.NodeIDs, o.NodeIDs, pattern.Meet) &&
		agree(s.Labels, o.Labels)
}

// domains returns the trust domains the selector admits.
func (s selector) domains() []string {
	if len(s.TrustDomains) > 0 {
		return s.TrustDomains
	}
	var domains []string
	for _, id := range s.SPIFFEIDs {
		domains = append(domains, trustDomain(id))
	}
	return domains
}

// namespaces returns the namespaces the selector admits.
func (s selector) namespaces() []string {
	if len(s.Namespaces) > 0 {
		return s.Namespaces
	}
	var all []string
	for _, account := range s.ServiceAccounts {
		namespace, _, _ := strings.Cut(account, "/")
		all = append(all, namespace)
	}
	return all
}

func anyMeet(as, bs []string, meet func(a, b string) bool) bool {
	if len(as) == 0 || len(bs) == 0 {
		return true
	}
	return slices.ContainsFunc(as, func(a string) bool {
		return slices.ContainsFunc(bs, func(b string) bool { return meet(a, b) })
	})
}

func agree(a, b map[string]string) bool {
	for key, value := range a {
		if other, ok := b[key]; ok && other != value {
			return false
		}
	}
	return true
}
