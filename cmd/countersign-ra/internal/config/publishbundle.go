package config

import (
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// PublishBundle serves the roots of an authority as a SPIFFE bundle endpoint, on each replica.
type PublishBundle struct {
	agent.Published
	// TrustDomain is that of the certificates below the roots, such as cluster.local. Required.
	TrustDomain string `json:"trust_domain"`
	// Authority has the roots. Default: default_provider, or the only provider.
	Authority string `json:"authority"`
	// ChainFile and KeyFile (PEM) are the certificate of the server; both files are watched.
	// Default: with https_web, istio.certificate.
	ChainFile string `json:"chain_file"`
	KeyFile   string `json:"key_file"`
}

// InFiles reports whether the certificate is in files.
func (b PublishBundle) InFiles() bool { return b.ChainFile+b.KeyFile != "" }

func (c *Config) checkPublishBundle(p *settings.Problems) {
	const path = "publish_bundle."
	b := &c.PublishBundle
	if b.Address == "" {
		if *b != (PublishBundle{}) {
			p.Say(path+"address", "", agent.WriteAddress)
		}
		return
	}
	b.Complete(func(setting, value, allowed string) { p.Say(setting, value, allowed) }, p.Add)
	if err := pki.CheckTrustDomain(b.TrustDomain); err != nil {
		p.Say(path+"trust_domain", b.TrustDomain, "write the trust domain of the certificates, such as cluster.local")
	}
	c.settle(p, path+"authority", &b.Authority)
	switch {
	case b.InFiles() && (b.ChainFile == "" || b.KeyFile == ""):
		p.Say(path+"chain_file", b.ChainFile, "set both chain_file and key_file, or neither")
	case b.InFiles():
	case b.Profile == agent.ProfileSPIFFE:
		p.Say(path+"profile", b.Profile, "countersign-ra has no X.509-SVID of its own: write https_web, or set chain_file and key_file to one")
	case !c.Istio.Enabled():
		p.Say(path+"chain_file", "", "without istio.listen, countersign-ra has no certificate of its own: set chain_file and key_file")
	}
}
