package authn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	subjectPrefix  = "system:serviceaccount:"
	namespacePlace = "{namespace}"
	accountPlace   = "{service_account}"
)

// Template maps Kubernetes service accounts to SPIFFE IDs. With the zero value
// identities have no SPIFFE ID.
type Template struct {
	text string
}

// ParseTemplate parses a template such as
// spiffe://cluster.local/ns/{namespace}/sa/{service_account}: each placeholder must
// occur once, as a whole path segment, so that no two accounts share an ID. Empty text
// returns the zero Template.
func ParseTemplate(text string) (Template, error) {
	if text == "" {
		return Template{}, nil
	}
	segments := strings.Split(text, "/")
	for _, place := range []string{namespacePlace, accountPlace} {
		if strings.Count(text, place) != 1 || !slices.Contains(segments[min(3, len(segments)):], place) {
			return Template{}, fmt.Errorf("invalid template %.256q: it must contain %s once, as a separate path segment, as in spiffe://cluster.local/ns/{namespace}/sa/{service_account}", text, place)
		}
	}
	if _, err := pki.ParseSPIFFEID(fill(text, "n", "s")); err != nil {
		return Template{}, fmt.Errorf("invalid template %.256q: %w", text, err)
	}
	return Template{text}, nil
}

// fill puts names into their places, each of which is a whole segment.
func fill(text, namespace, account string) string {
	segments := strings.Split(text, "/")
	for i, segment := range segments {
		switch segment {
		case namespacePlace:
			segments[i] = namespace
		case accountPlace:
			segments[i] = account
		}
	}
	return strings.Join(segments, "/")
}

// IsZero reports whether the template yields no SPIFFE IDs.
func (t Template) IsZero() bool { return t.text == "" }

// Identity returns the identity of a Kubernetes user such as
// system:serviceaccount:<namespace>:<service account>.
func (t Template) Identity(user string) (Identity, error) {
	rest, ok := strings.CutPrefix(user, subjectPrefix)
	namespace, account, both := strings.Cut(rest, ":")
	if !ok || !both || !areServiceAccount(namespace, account) {
		return Identity{}, fmt.Errorf("%.256q is not a service account: must be system:serviceaccount:<namespace>:<name>", user)
	}
	id := Identity{Namespace: namespace, ServiceAccount: account}
	if t.IsZero() {
		return id, nil
	}
	spiffeID := fill(t.text, namespace, account)
	if _, err := pki.ParseSPIFFEID(spiffeID); err != nil {
		return Identity{}, err
	}
	id.SPIFFEID = spiffeID
	return id, nil
}

// areServiceAccount checks the names against Kubernetes' rules (RFC 1123 label and
// subdomain): a slash or a colon could yield another account's ID.
func areServiceAccount(namespace, account string) bool {
	if len(namespace) > 63 || strings.Contains(namespace, ".") || len(account) > 253 {
		return false
	}
	for label := range strings.SplitSeq(namespace+"."+account, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

func isLabel(label string) bool {
	if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(label, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}
