package config

import (
	"slices"

	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// IstioDoor returns the name of the engine's door for a CertSigner, empty for none; ok is
// false if it is not served.
func (c *Config) IstioDoor(certSigner string) (name string, ok bool) {
	if !c.Istio.Enabled() || certSigner != "" && !slices.Contains(c.CertSigners(), certSigner) {
		return "", false
	}
	if certSigner == "" {
		return istioca.Doors()[0].Name, true
	}
	return istioca.Doors(certSigner)[1].Name, true
}

// istioDoors returns the engine's doors for meshes.
func (c *Config) istioDoors() []ra.Door {
	if !c.Istio.Enabled() {
		return nil
	}
	return istioca.Doors(c.CertSigners()...)
}

// istioDoorsOf returns those that a rule is for: it names the kind of requests, so that what was
// written for another kind does not open a door for a mesh.
func (c *Config) istioDoorsOf(p *settings.Problems, path string, m Match) []ra.Door {
	asks := slices.Contains(m.Requests, IstioRequests)
	for _, name := range m.CertSigners {
		if name == "" || text.Clean(name) != name {
			p.Say(path+".match.cert_signers", m.CertSigners, "write values of CertSigner that print, such as istio-system/fast")
		}
	}
	switch {
	case !asks && len(m.CertSigners) > 0:
		p.Say(path+".match.cert_signers", m.CertSigners, "it has no effect without istio in match.requests; add that, or remove this")
		return nil
	case asks && len(m.Requests) == 1 && len(m.Signers) > 0:
		p.Say(path+".match.signers", m.Signers, "requests of a mesh have none; remove this, or write match.cert_signers")
	case asks && !c.Istio.Enabled():
		p.Say(path+".match.requests", IstioRequests, "it has no effect without istio.listen; set that, or remove this")
	}
	switch {
	case !asks || !c.Istio.Enabled():
		return nil
	case len(m.CertSigners) == 0:
		return istioca.Doors()
	}
	return istioca.Doors(m.CertSigners...)[1:]
}
