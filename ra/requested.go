package ra

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxRequested bounds the names that one request asks for.
const maxRequested = 32

// requested are the names of a rule that may be asked for.
type requested struct {
	dns      []template
	ids      []template // SPIFFE IDs, each in place of the rule's
	networks []netip.Prefix
}

func (r requested) none() bool { return len(r.dns)+len(r.ids)+len(r.networks) == 0 }

// further are names beside those of a rule.
type further struct{ dns, ips []string }

func parseRequested(texts []string) (r requested, err error) {
	for _, text := range texts {
		if network, ok := parseNetwork(text); ok {
			r.networks = append(r.networks, network)
			continue
		}
		to, parse := &r.dns, parseRequestedDNS
		if strings.Contains(text, "://") {
			to, parse = &r.ids, parseRequestedID
		}
		t, err := parse(text)
		if err != nil {
			return r, err
		}
		*to = append(*to, t)
	}
	return r, nil
}

// parseNetwork reads an IP address or a network of them.
func parseNetwork(text string) (netip.Prefix, bool) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()), true
	}
	network, err := netip.ParsePrefix(text)
	return network, err == nil
}

// parseRequestedID reads a SPIFFE ID. What it leaves open, a caller could choose, so it leaves nothing.
func parseRequestedID(text string) (template, error) {
	t, err := parseSPIFFE(text)
	if err == nil {
		_, err = templates{spiffe: &t}.fill(sample)
	}
	return t, err
}

// checkIDs refuses a SPIFFE ID that more subjects could ask for than have the rule's.
func (t templates) checkIDs() error {
	if t.spiffe == nil {
		return nil
	}
	for _, other := range t.requested.ids {
		for _, p := range t.spiffe.parts {
			if p.attribute != "" && !slices.ContainsFunc(other.parts, func(o part) bool { return o.attribute == p.attribute }) {
				return fmt.Errorf("the template %.256q lacks {%s}, so that subjects with different SPIFFE IDs could ask for the same one", other.text, p.attribute)
			}
		}
	}
	return nil
}

func parseRequestedDNS(text string) (template, error) {
	t, err := parseDNS(text)
	if err != nil {
		return t, err
	}
	if err := t.checkRequested(); err != nil {
		return t, fmt.Errorf("the template %.256q: %w", text, err)
	}
	return t, nil
}

// The first label of a pattern may be one of these.
const (
	anyLabel = "*"   // one label of any text
	wildcard = "[*]" // the label '*' itself, so that the name is a wildcard name
)

func (t template) checkRequested() error {
	first := t.parts[0].text
	for i, p := range t.parts {
		written := strings.TrimPrefix(p.text, "_") // as in _acme-challenge
		switch {
		case p.attribute != "" || i == 0 && (first == anyLabel || first == wildcard):
		case strings.Contains(p.text, "*"):
			return errors.New("'*' or '[*]' can only be the whole first label")
		case labelFault(written) != "":
			return fmt.Errorf("the label %.64q is invalid: %s", p.text, labelFault(written))
		}
	}
	if len(t.parts) < 3 && (first == anyLabel || first == wildcard) {
		return fmt.Errorf("there must be two labels at least behind '%s'", first)
	}
	return nil
}

// with returns the names for a subject and those that it asks for, which must all be allowed.
func (t templates) with(asked further, s Subject) (pki.Identity, error) {
	if n := len(asked.dns) + len(asked.ips); n > maxRequested {
		return pki.Identity{}, about{ErrNames, fmt.Sprintf("%d names are asked for, %d are allowed", n, maxRequested)}
	}
	for _, name := range asked.dns {
		if !t.requested.allow(name, s) {
			return pki.Identity{}, about{ErrNames, fmt.Sprintf("the DNS name %.256q is asked for, and %s", name, notAllowed(name))}
		}
	}
	for _, address := range asked.ips {
		if !t.requested.allowIP(address) {
			return pki.Identity{}, about{ErrNames, fmt.Sprintf("the IP address %.64q is asked for, and the rule allows none like it", address)}
		}
	}
	return t.fill(s, asked)
}

// of returns the templates with the SPIFFE ID that a CSR has, if the rule allows the subject to ask
// for it. Doors refuse a CSR with any other, if they compare it with what is granted.
func (t templates) of(csr pki.Identity, s Subject) templates {
	if csr.SPIFFEID == nil {
		return t
	}
	for i, other := range t.requested.ids {
		if id, err := other.fill(s); err == nil && id == csr.SPIFFEID.String() {
			t.spiffe = &t.requested.ids[i]
		}
	}
	return t
}

// notAllowed returns why a name is not granted. '*' in a pattern covers neither of the first two kinds.
func notAllowed(name string) string {
	switch {
	case strings.Contains(name, "*"):
		return "the rule allows no such wildcard name: '[*]' as the first label of a pattern would"
	case strings.Contains(name, "_"):
		return "the rule allows no such name with '_': a pattern would have to spell the label out"
	}
	return "the rule allows none like it"
}

func (r requested) allowIP(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && slices.ContainsFunc(r.networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

func (r requested) allow(name string, s Subject) bool {
	labels := strings.Split(name, ".")
	for _, allowed := range r.dns {
		if len(name) <= maxAttribute && allowed.covers(labels, s) {
			return true
		}
	}
	return false
}

// covers reports whether labels fill the template for a subject.
func (t template) covers(labels []string, s Subject) bool {
	if len(labels) != len(t.parts) {
		return false
	}
	for i, p := range t.parts {
		if !p.covers(labels[i], s) {
			return false
		}
	}
	return true
}

func (p part) covers(label string, s Subject) bool {
	switch {
	case p.attribute != "":
		return label == attributes[p.attribute](s) && labelFault(label) == ""
	case p.text == anyLabel:
		return labelFault(label) == ""
	case p.text == wildcard:
		return label == "*"
	}
	return label == p.text
}
