package secrets

import (
	"crypto/x509"
	"fmt"
	"io"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// secretShown is a secret as it is printed; the key only on request.
type secretShown struct {
	Time         time.Time   `json:"time"` // when it arrived
	Name         string      `json:"name"`
	Kind         string      `json:"kind"`
	Certificates []certShown `json:"certificates"` // leaf first; the roots of a bundle
	Key          string      `json:"key,omitempty"`
}

type certShown struct {
	Identities  []string  `json:"identities,omitempty"`
	Subject     string    `json:"subject,omitempty"`
	Issuer      string    `json:"issuer,omitempty"`
	Serial      string    `json:"serial"`
	Fingerprint string    `json:"fingerprint"` // SHA-256 of the DER
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
	// TrustDomain is what a root is for, if it goes to Envoy's SPIFFE validator.
	TrustDomain string `json:"trust_domain,omitempty"`
}

// readAnswer decodes what an agent sent.
func readAnswer(answer *discoveryv3.DiscoveryResponse, showKey bool) ([]secretShown, error) {
	var all []secretShown
	for _, resource := range answer.Resources {
		var s tlsv3.Secret
		if err := resource.UnmarshalTo(&s); err != nil {
			return nil, fmt.Errorf("the agent sent an invalid secret: %w", err)
		}
		one, err := show(&s, showKey)
		if err != nil {
			return nil, fmt.Errorf("the agent's secret %.256q: %w", s.Name, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func show(s *tlsv3.Secret, showKey bool) (secretShown, error) {
	out := secretShown{Time: time.Now().UTC(), Name: s.Name, Kind: config.TrustBundle}
	if custom := s.GetValidationContext().GetCustomValidatorConfig(); custom != nil {
		return out, out.addDomains(custom)
	}
	text := s.GetValidationContext().GetTrustedCa().GetInlineBytes()
	if pair := s.GetTlsCertificate(); pair != nil {
		out.Kind, text = config.KeyPair, pair.GetCertificateChain().GetInlineBytes()
		if showKey {
			out.Key = string(pair.GetPrivateKey().GetInlineBytes())
		}
	}
	certs, err := pki.ParseCertificates(text)
	for _, cert := range certs {
		out.Certificates = append(out.Certificates, showCert(cert))
	}
	return out, err
}

// addDomains adds the roots that Envoy's SPIFFE validator has.
func (s *secretShown) addDomains(custom *corev3.TypedExtensionConfig) error {
	var validator tlsv3.SPIFFECertValidatorConfig
	if err := custom.GetTypedConfig().UnmarshalTo(&validator); err != nil {
		return fmt.Errorf("not for Envoy's SPIFFE validator: %w", err)
	}
	for _, domain := range validator.GetTrustDomains() {
		roots, err := pki.ParseCertificates(domain.GetTrustBundle().GetInlineBytes())
		if err != nil {
			return err
		}
		for _, root := range roots {
			shown := showCert(root)
			shown.TrustDomain = domain.GetName()
			s.Certificates = append(s.Certificates, shown)
		}
	}
	return nil
}

func showCert(cert *x509.Certificate) certShown {
	c := certShown{
		Subject: cert.Subject.String(), Issuer: cert.Issuer.String(), Serial: cert.SerialNumber.Text(16),
		Fingerprint: pki.Fingerprint(cert), NotBefore: cert.NotBefore, NotAfter: cert.NotAfter,
	}
	if id, err := pki.IdentityOf(cert); err == nil {
		c.Identities = id.Names()
	}
	return c
}

// printer prints secrets as they arrive: a table with columns of fixed width, as later
// rows are not known yet (the longest column is last), or one JSON object per line, which has all
// that the table leaves out. A terminal cuts what is too wide for it, with a mark.
type printer struct {
	w      io.Writer
	width  int // of the terminal; 0: none
	json   bool
	headed bool
	filter cli.Filter // rows that do not contain it are left out
	seen   map[string]bool
}

func newPrinter(w io.Writer, output string) *printer {
	return &printer{w: w, width: cli.Width(w), json: output == "json", seen: map[string]bool{}}
}

const (
	row        = "%-8s  %-12s  %-7s  %-12s  %-12s  %s\n"
	nameWidth  = 12
	otherWidth = 8 + 7 + 12 + 12 + 5*2 // of the columns between, and the gaps
)

// fit cuts a name and an identity to what a terminal has room for beside the other columns.
func (p *printer) fit(name, identity string) (shownName, shownIdentity string) {
	room := p.width - otherWidth
	if p.width == 0 || max(nameWidth, cli.Columns(name))+cli.Columns(identity) <= room {
		return name, identity
	}
	right := max(0, min(cli.Columns(identity), room-nameWidth))
	return cli.CutWithin(name, max(nameWidth, room-right)), cli.CutWithin(identity, right)
}

// print returns how many of the secrets it has shown.
func (p *printer) print(all []secretShown) (shown int, err error) {
	for _, s := range all {
		did, err := p.one(s)
		if err != nil {
			return shown, err
		}
		if did {
			shown++
		}
	}
	return shown, nil
}

// one reports whether it has shown the secret.
func (p *printer) one(s secretShown) (shown bool, err error) {
	if p.json {
		return true, text.WriteJSON(p.w, s, "")
	}
	event := "held"
	if p.seen[s.Name] {
		event = "rotated"
	}
	p.seen[s.Name] = true
	return p.rows(s, event)
}

// head writes the names of the columns above the first row.
func (p *printer) head() error {
	if p.headed {
		return nil
	}
	p.headed = true
	_, err := fmt.Fprintf(p.w, row, "TIME", "NAME", "EVENT", "SERIAL", "EXPIRES", "IDENTITY")
	return err
}

// rows writes a key pair's leaf, or each root of a bundle, and reports whether the filter has kept one.
func (p *printer) rows(s secretShown, event string) (shown bool, err error) {
	certs := s.Certificates
	if s.Kind == config.KeyPair {
		certs = certs[:1]
	}
	for _, c := range certs {
		who := strings.Join(c.Identities, ", ")
		if s.Kind == config.TrustBundle {
			who = "root " + c.Subject
		}
		if c.TrustDomain != "" {
			who += " of " + c.TrustDomain
		}
		name, identity, ends := text.Clean(s.Name), text.Clean(who), until(c.NotAfter.Sub(s.Time))
		if !p.filter.Keeps(name, event, short(c.Serial, 12), ends, identity) {
			continue
		}
		shown = true
		name, identity = p.fit(name, identity)
		if err := p.head(); err != nil {
			return true, err
		}
		if _, err := fmt.Fprintf(p.w, row, s.Time.Local().Format(time.TimeOnly), name, event, short(c.Serial, 12), ends, identity); err != nil {
			return true, err
		}
	}
	if shown {
		_, err = io.WriteString(p.w, s.Key)
	}
	return shown, err
}

func short(s string, n int) string { return s[:min(n, len(s))] }

// until formats a duration for people.
func until(left time.Duration) string {
	switch days := int(left.Hours() / 24); {
	case left < 0:
		return "expired"
	case days >= 2:
		return fmt.Sprintf("in %d days", days)
	case left > time.Hour:
		return "in " + strings.TrimSuffix(left.Round(time.Minute).String(), "0s")
	}
	return "in " + left.Round(time.Second).String()
}
