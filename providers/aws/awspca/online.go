package awspca

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/acmpca"
	"github.com/aws/aws-sdk-go-v2/service/acmpca/types"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// ValidateOnline fetches the CA's chain and describes the CA, if the credentials may. It has
// nothing signed. With the credentials [Token] there are none to ask with.
func (s Settings) ValidateOnline(ctx context.Context) []provider.Diagnostic {
	c, err := Open(ctx, s)
	if err != nil {
		return provider.Faults("", err)
	}
	return c.examine(ctx)
}

func (c *CA) examine(ctx context.Context) (found []provider.Diagnostic) {
	if err := c.CertifiesNames(ctx); err != nil {
		found = append(found, provider.Diagnostic{
			Warning: true, Pointer: "/template",
			Summary: ca.Errorf(ca.Invalid, "template %s certifies the names of the CSR: requests whose CSR has no names or other ones, as a kubelet's, are refused", c.settings.Template).Message,
			Detail:  "Ignore this if all CSRs have the names of their requests, as an agent's. Otherwise remove template.",
		})
	}
	if c.settings.Credentials == Token {
		return found
	}
	if _, err := c.fetch(ctx, ""); err != nil {
		return append(found, provider.Faults("", err)...)
	}
	return append(found, c.describe(ctx)...)
}

// describe returns what in the CA's state keeps it from signing. Credentials that may request
// certificates need not be allowed to read the state: a refusal is no finding.
func (c *CA) describe(ctx context.Context) []provider.Diagnostic {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	as, err := c.caller("")
	if err != nil {
		return provider.Faults("", err)
	}
	reply, err := c.api.DescribeCertificateAuthority(ctx, &acmpca.DescribeCertificateAuthorityInput{CertificateAuthorityArn: &c.arn.text}, as.option)
	if err != nil {
		if err = c.failure(ctx, err, as); ca.ReasonFor(err) == ca.Denied {
			return nil
		}
		return provider.Faults("", err)
	}
	return c.faultsOf(reply.CertificateAuthority)
}

func (c *CA) faultsOf(described *types.CertificateAuthority) (found []provider.Diagnostic) {
	if described == nil {
		return nil
	}
	if status := described.Status; status != types.CertificateAuthorityStatusActive {
		found = append(found, provider.Diagnostic{
			Pointer: "/ca_arn", Summary: c.arn.text + " is " + provider.CleanText(string(status)) + ", and signs nothing",
			Detail: "Only an ACTIVE CA signs: enable it, or install its certificate.",
		})
	}
	if described.UsageMode == types.CertificateAuthorityUsageModeShortLivedCertificate {
		found = append(found, provider.Diagnostic{
			Warning: true, Pointer: "/ca_arn", Summary: c.arn.text + " signs short-lived certificates only: a lifetime of more than 7 days is refused",
			Detail: "Request 7 days or less (ttl).",
		})
	}
	return found
}
