package spiresecret

import (
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Spec is one secret: a key pair, or a trust bundle. Where an agent has several
// X.509-SVIDs, SPIFFEID and Hint select one; the first one is the workload's default.
type Spec struct {
	Name string
	Kind secret.Kind
	// SPIFFEID is that of the X.509-SVID. Without it, the Workload API decides which
	// identity this is, and may change it. Default: any.
	SPIFFEID string
	// Hint is that of the X.509-SVID, as in "internal". Default: any.
	Hint string
	// TrustDomain selects a trust bundle, in place of SPIFFEID and Hint: that of the
	// agent's own trust domain or of a federated one, as in "example.org". Default: that of
	// the X.509-SVID.
	TrustDomain string
}

func (s Spec) check() error {
	switch {
	case s.Name == "":
		return errors.New("a secret has no name")
	case s.Kind != secret.KeyPair && s.Kind != secret.TrustBundle:
		return fmt.Errorf("secret %.256q is neither a key pair nor a trust bundle", s.Name)
	case s.TrustDomain != "" && s.Kind == secret.KeyPair:
		return fmt.Errorf("secret %.256q is a key pair: select it by SPIFFE ID or hint, not by trust domain", s.Name)
	case s.TrustDomain != "" && s.SPIFFEID+s.Hint != "":
		return fmt.Errorf("secret %.256q: select the trust bundle by trust domain, or by SPIFFE ID and hint", s.Name)
	}
	if err := s.checkNames(); err != nil {
		return fmt.Errorf("secret %.256q: %w", s.Name, err)
	}
	return nil
}

func (s Spec) checkNames() error {
	if s.SPIFFEID != "" {
		if _, err := pki.ParseSPIFFEID(s.SPIFFEID); err != nil {
			return err
		}
	}
	if s.TrustDomain != "" {
		return pki.CheckTrustDomain(s.TrustDomain)
	}
	return nil
}

// String describes what is selected, for an operator.
func (s Spec) String() string {
	switch {
	case s.TrustDomain != "":
		return "trust domain " + s.TrustDomain
	case s.SPIFFEID != "" && s.Hint != "":
		return fmt.Sprintf("%s with hint %q", s.SPIFFEID, text.Clean(s.Hint))
	case s.Hint != "":
		return fmt.Sprintf("the X.509-SVID with hint %q", text.Clean(s.Hint))
	case s.SPIFFEID != "":
		return s.SPIFFEID
	}
	return "the first X.509-SVID"
}

// selects reports whether svid is what the Spec means. Of several, the first counts.
func (s Spec) selects(svid *workloadv1.X509SVID) bool {
	if s.TrustDomain != "" {
		return strings.HasPrefix(svid.GetSpiffeId(), idOf(s.TrustDomain)+"/")
	}
	return (s.SPIFFEID == "" || svid.GetSpiffeId() == s.SPIFFEID) && (s.Hint == "" || svid.GetHint() == s.Hint)
}

// idOf returns the SPIFFE ID of a trust domain, by which the protocol names its bundle.
func idOf(trustDomain string) string { return "spiffe://" + trustDomain }
