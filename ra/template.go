package ra

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxTemplate bounds a template, in bytes.
const maxTemplate = 2048

// Names are the templates of the names that a rule grants. {attribute} stands for an
// attribute of the subject: cluster, kind, namespace, serviceAccount, serviceAccountUID,
// pod, podUID, node, nodeUID or user.
type Names struct {
	// SPIFFEID is a SPIFFE ID, such as
	// spiffe://example.org/ns/{namespace}/sa/{serviceAccount}. An attribute is a whole
	// path segment; the trust domain is written out.
	SPIFFEID string
	// DNSNames are DNS names, such as {serviceAccount}.{namespace}.svc. An attribute is a
	// whole label; the last label is written out.
	DNSNames []string
	// IPAddresses are written out: no address of a pod is verified.
	IPAddresses []string
	// Requested are names that are granted to a subject that asks for them. A rule may have these
	// alone, and then gives a request without names nothing. Default: none. Each is one of
	//   - further DNS names, such as *.{namespace}.apps.example.org, asked for with
	//     [Request.DNSNames] or [Request.NamesOfCSR]. The requester chooses among them, so they should
	//     end in something of the subject's own. The first label may be '*', for one label of letters,
	//     digits and '-', or '[*]', for the label '*' of a wildcard name. A label that is written out
	//     may begin with '_'; all else is as in DNSNames.
	//   - further IP addresses, asked for with [Request.NamesOfCSR]: an address, or a network such as
	//     10.1.0.0/16, which is for any of its addresses.
	//   - another SPIFFE ID, as in SPIFFEID, which a CSR that has it gets in its place: a certificate
	//     has one (X509-SVID, section 2). It is for a move to another trust domain.
	Requested []string
}

// template is a name in parts: labels between dots or segments between slashes.
type template struct {
	text   string
	prefix string
	parts  []part
	by     string              // what separates the parts
	fits   func(string) string // returns why a value is not a single part; empty if it is
}

// part is a label or segment: a text, or an attribute that fills all of it.
type part struct{ text, attribute string }

func parseParts(text, body, by string, fits func(string) string) (template, error) {
	t := template{text: text, by: by, fits: fits}
	if len(text) > maxTemplate {
		return t, fmt.Errorf("the template %.64q… has %d bytes, %d are allowed", text, len(text), maxTemplate)
	}
	for item := range strings.SplitSeq(body, by) {
		name, isAttribute := attributeIn(item)
		switch {
		case !isAttribute && strings.ContainsAny(item, "{}"):
			return t, fmt.Errorf("the template %.256q: %.256q is neither a text nor one {attribute}, which fills all of its place", text, item)
		case isAttribute && attributes[name] == nil:
			return t, fmt.Errorf("the template %.256q: {%.64s} is not a verified attribute of a subject", text, name)
		case isAttribute:
			item = ""
		}
		t.parts = append(t.parts, part{item, name})
	}
	return t, nil
}

func attributeIn(item string) (name string, ok bool) {
	inner, opened := strings.CutPrefix(item, "{")
	inner, closed := strings.CutSuffix(inner, "}")
	if !opened || !closed || strings.ContainsAny(inner, "{}") {
		return "", false
	}
	return inner, true
}

func parseDNS(text string) (template, error) {
	t, err := parseParts(text, text, ".", labelFault)
	if err == nil && t.parts[len(t.parts)-1].attribute != "" {
		err = fmt.Errorf("the template %.256q: write the last label out, or a tenant that chooses a name could take any domain", text)
	}
	return t, err
}

func parseSPIFFE(text string) (template, error) {
	rest, ok := strings.CutPrefix(text, "spiffe://")
	domain, path, slash := strings.Cut(rest, "/")
	switch {
	case !ok || !slash:
		return template{}, fmt.Errorf("the template %.256q is not a SPIFFE ID: use spiffe://<trust domain>/<path>", text)
	case strings.ContainsAny(domain, "{}"):
		return template{}, fmt.Errorf("the template %.256q takes its trust domain from an attribute: write it out", text)
	}
	t, err := parseParts(text, domain+"/"+path, "/", segmentFault)
	t.prefix = "spiffe://"
	return t, err
}

// fill returns the name for a subject. An attribute fills its one part or is refused.
func (t template) fill(s Subject) (string, error) {
	filled := make([]string, len(t.parts))
	for i, p := range t.parts {
		filled[i] = p.text
		if p.attribute == "" {
			continue
		}
		value := attributes[p.attribute](s)
		if fault := t.fits(value); fault != "" {
			return "", fmt.Errorf("the %s %.256q cannot stand in %.256q: %s", p.attribute, value, t.text, fault)
		}
		filled[i] = value
	}
	return t.prefix + strings.Join(filled, t.by), nil
}

// labelFault returns why a value is not a single DNS label (RFC 1123, section 2.1). Upper
// case is refused, as it would be folded, and so is a label in another script, as it looks
// like an allowed one ("xn--", RFC 5890).
func labelFault(value string) string {
	switch {
	case value == "":
		return "it is not known"
	case len(value) > 63:
		return "a DNS label has 63 bytes at most"
	case strings.HasPrefix(value, "xn--"):
		return "a name in another script is not granted"
	case value[0] == '-' || value[len(value)-1] == '-' || !onlyOf(value, "abcdefghijklmnopqrstuvwxyz0123456789-"):
		return "a DNS label has lower-case letters, digits and '-' inside"
	}
	return ""
}

// segmentFault returns why a value is not a single path segment (SPIFFE-ID standard,
// section 2.2).
func segmentFault(value string) string {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
	switch {
	case value == "":
		return "it is not known"
	case value == "." || value == "..":
		return "a path segment is not '.' or '..'"
	case !onlyOf(value, allowed):
		return "a path segment has letters, digits, '.', '-' and '_' only"
	}
	return ""
}

func onlyOf(text, allowed string) bool {
	return strings.Trim(text, allowed) == ""
}

// templates are the parsed Names of a rule.
type templates struct {
	spiffe    *template
	dns       []template
	ips       []string
	requested requested
}

func parseNames(n Names) (t templates, err error) {
	if n.SPIFFEID != "" {
		spiffe, err := parseSPIFFE(n.SPIFFEID)
		if err != nil {
			return t, err
		}
		t.spiffe = &spiffe
	}
	for _, text := range n.DNSNames {
		name, err := parseDNS(text)
		if err != nil {
			return t, err
		}
		t.dns = append(t.dns, name)
	}
	for _, text := range n.IPAddresses {
		if _, err := netip.ParseAddr(text); err != nil {
			return t, fmt.Errorf("the IP address %.256q is not valid: write it out, no attribute is an address", text)
		}
		t.ips = append(t.ips, text)
	}
	if t.requested, err = parseRequested(n.Requested); err != nil {
		return t, err
	}
	if err := t.checkIDs(); err != nil {
		return t, err
	}
	return t, t.try()
}

// chosen reports whether a granted name has an attribute whose value tenants choose, such as the name
// of a pod. An authority may refuse or change the names of one subject for it, and no others.
func (t templates) chosen() bool {
	granted := slices.Concat(t.dns, t.requested.ids)
	if t.spiffe != nil {
		granted = append(granted, *t.spiffe)
	}
	return slices.ContainsFunc(granted, func(name template) bool {
		return slices.ContainsFunc(name.parts, func(p part) bool { return slices.Contains(chosenAttributes, p.attribute) })
	})
}

var sample = Subject{
	Kind: "x", Cluster: "x", Namespace: "x", ServiceAccount: "x", ServiceAccountUID: "x",
	Pod: "x", PodUID: "x", Node: "x", NodeUID: "x", User: "x",
}

// try fills the templates with a sample, so that what is written out is checked early.
func (t templates) try() error {
	id, err := t.fill(sample)
	if err == nil && id.IsZero() && t.requested.none() {
		return errors.New("it grants no name: give it a SPIFFE ID, a DNS name, an IP address, or names that may be asked for")
	}
	return err
}

// fill returns the names for a subject, all of them or an error, and further ones with them.
func (t templates) fill(s Subject, also ...further) (pki.Identity, error) {
	var spiffe string
	var dns []string
	var err error
	if t.spiffe != nil {
		if spiffe, err = t.spiffe.fill(s); err != nil {
			return pki.Identity{}, err
		}
	}
	for _, name := range t.dns {
		filled, err := name.fill(s)
		if err != nil {
			return pki.Identity{}, err
		}
		dns = append(dns, filled)
	}
	ips := slices.Clone(t.ips)
	for _, more := range also {
		dns, ips = append(dns, more.dns...), append(ips, more.ips...)
	}
	return pki.NewIdentity(spiffe, dns, ips)
}
