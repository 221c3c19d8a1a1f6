package googleca

import (
	"context"

	"cloud.google.com/go/security/privateca/apiv1/privatecapb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// ValidateOnline fetches the pool's roots and reads the pool, if the credentials may. It has
// nothing signed. With the credentials [Token] there is none to ask with.
func (s Settings) ValidateOnline(ctx context.Context) []provider.Diagnostic {
	c, err := Open(ctx, s)
	if err != nil {
		return provider.Faults("", err)
	}
	defer func() { _ = c.Close() }()
	return c.examine(ctx)
}

func (c *CA) examine(ctx context.Context) []provider.Diagnostic {
	if !c.settings.certifiesNames() {
		err := c.CertifiesNames(ctx)
		return []provider.Diagnostic{{Warning: true, Summary: err.Error(), Detail: adviceForAgents + "use protocol cas with subject_mode csr."}}
	}
	if c.settings.Credentials == Token {
		return nil
	}
	if _, err := c.fetch(ctx, ""); err != nil {
		return provider.Faults("", err)
	}
	return c.askPool(ctx)
}

const adviceForAgents = "Ignore this if all CSRs have the names of their requests, as an agent's. Otherwise "

// askPool reads the pool's issuance policy. Credentials that may request certificates need not
// be allowed to read it: a refusal is no finding.
func (c *CA) askPool(ctx context.Context) []provider.Diagnostic {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	found, err := c.pool.client.GetCaPool(ctx, &privatecapb.GetCaPoolRequest{Name: c.settings.CAPool}, c.pool.callOptions(""))
	if err = c.failure(ctx, err, ""); ca.ReasonFor(err) == ca.Denied {
		return nil
	}
	if err != nil {
		return provider.Faults("", err)
	}
	return warnings(c.settings.CAPool, found.GetIssuancePolicy())
}

// warnings lists the parts of a pool's policy that keep the names of a request from counting. A
// part that is not set allows all.
func warnings(pool string, policy *privatecapb.CaPool_IssuancePolicy) (found []provider.Diagnostic) {
	warn := func(says, otherwise string) {
		found = append(found, provider.Diagnostic{Warning: true, Pointer: "/ca_pool", Summary: pool + " " + says, Detail: otherwise})
	}
	if modes := policy.GetAllowedIssuanceModes(); modes != nil && !modes.GetAllowConfigBasedIssuance() {
		warn("has no config-based issuance: requests whose CSR has no names or other ones, as a kubelet's, are refused",
			adviceForAgents+"set allowed_issuance_modes.allow_config_based_issuance in the pool.")
	}
	if names := policy.GetIdentityConstraints(); names != nil && !names.GetAllowSubjectAltNamesPassthrough() {
		warn("passes no names on (allow_subject_alt_names_passthrough): every certificate lacks those of its request",
			"Set identity_constraints.allow_subject_alt_names_passthrough in the pool.")
	}
	return found
}
