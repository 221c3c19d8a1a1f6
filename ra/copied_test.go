package ra_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

var (
	keyUsage      = asn1.ObjectIdentifier{2, 5, 29, 15}
	keyIdentifier = asn1.ObjectIdentifier{2, 5, 29, 14}
	constraints   = asn1.ObjectIdentifier{2, 5, 29, 19}
	extendedUsage = asn1.ObjectIdentifier{2, 5, 29, 37}

	forServers = []byte{6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1}
	forClients = []byte{6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2}
	forCode    = []byte{6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 3}
)

// sequence is the value of an extension with these elements.
func sequence(elements ...[]byte) []byte {
	value := []byte{0x30, 0}
	for _, e := range elements {
		value = append(value, e...)
	}
	value[1] = byte(len(value) - 2)
	return value
}

// copying has the authority copy the extensions of a CSR, as some do.
func copying(h *house) {
	h.ca.Change = func(leaf *x509.Certificate, csr *x509.CertificateRequest) {
		leaf.ExtraExtensions = csr.Extensions
	}
}

// Each of these would fail a check of the reply, and so stop the rule for all.
func TestExtensionsThatAnAuthorityCopiesStopNoOtherRequest(t *testing.T) {
	for name, extension := range map[string]pkix.Extension{
		"to sign code":              {Id: extendedUsage, Value: sequence(forCode)},
		"clients alone":             {Id: extendedUsage, Value: sequence(forClients)},
		"no usage that there is":    {Id: extendedUsage, Value: []byte{5, 0}},
		"to sign certificates":      {Id: keyUsage, Value: []byte{3, 2, 2, 0x84}},
		"to encrypt alone":          {Id: keyUsage, Value: []byte{3, 2, 5, 0x20}},
		"to be a CA":                {Id: constraints, Critical: true, Value: sequence([]byte{1, 1, 0xff})},
		"no constraints":            {Id: constraints, Value: []byte{5, 0}},
		"a malformed identifier":    {Id: keyIdentifier, Value: []byte{5, 0}},
		"an identifier, critically": {Id: keyIdentifier, Critical: true, Value: []byte{4, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := mesh()
			rule.Usages = ra.Both
			inBubble(t, func(c *ra.Config) { c.Policy = policy(t, rule) }, func(h *house) {
				copying(h)
				bad := request()
				bad.CSR = csr(0, &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{extension}})
				h.refused(bad, ca.ErrInvalid)
				if n := h.ca.Issued(); n > 0 {
					t.Errorf("it cost %d certificates", n)
				}
				other := request()
				other.Subject.PodUID = "2"
				h.must(other)
			})
		})
	}
}

func TestExtensionsOfTheRuleAreGranted(t *testing.T) {
	rule := mesh()
	rule.Usages = ra.Both
	inBubble(t, func(c *ra.Config) { c.Policy = policy(t, rule) }, func(h *house) {
		copying(h)
		good := request()
		good.CSR = csr(0, &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
			{Id: extendedUsage, Value: sequence(forServers, forClients)}, {Id: keyUsage, Critical: true, Value: []byte{3, 2, 7, 0x80}},
			{Id: constraints, Critical: true, Value: sequence()}, {Id: keyIdentifier, Value: []byte{4, 1, 1}},
		}})
		h.must(good)
	})
}
