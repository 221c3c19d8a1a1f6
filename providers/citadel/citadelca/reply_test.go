package citadelca

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// replying has the next call answered with what f makes of a good reply: leaf,
// intermediate, root.
func (i *istiod) replying(f func(leaf, intermediate, root string) []string) {
	i.next(func(ctx context.Context) ([]string, error) {
		calls := i.calls()
		good, err := i.sign(ctx, calls[len(calls)-1].request)
		if err != nil {
			return nil, err
		}
		return f(good[0], good[1], good[2]), nil
	})
}

func TestReplySplitsIntoLeafIntermediatesAndRoots(t *testing.T) {
	server := start(t)
	c := mustOpen(t, server.settings(t))
	other := string(catest.NewCA(catest.Options{}).Bundle().PEM())
	for name, test := range map[string]struct {
		reply func(leaf, intermediate, root string) []string
		roots int
	}{
		"leaf-intermediate-root":    {func(l, i, r string) []string { return []string{l, i, r} }, 1},
		"chain-in-one":              {func(l, i, r string) []string { return []string{l + i, r} }, 1},
		"several-roots-in-the-last": {func(l, i, r string) []string { return []string{l, i, other + r} }, 2},
		"the-same-root-twice":       {func(l, i, r string) []string { return []string{l, i, r + r} }, 1},
		"root-in-the-chain-too":     {func(l, i, r string) []string { return []string{l, i + r, r} }, 1},
		"root-alone-and-last":       {func(l, i, r string) []string { return []string{l, i, r, r} }, 1},
		"text-between":              {func(l, i, r string) []string { return []string{"the leaf\n" + l, i, "a root\n" + r} }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server.replying(test.reply)
			req, check := ask(t, theToken)
			reply, err := c.CSRSign(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			chain := testkit.Passes(t, reply, check)
			if n := bytes.Count(reply.Roots, []byte("BEGIN")); n != test.roots || len(chain.Certificates) != 2 {
				t.Errorf("%d roots, %d certificates in the chain", n, len(chain.Certificates))
			}
		})
	}
}

func TestLeafSignedByRootNeedsNoIntermediate(t *testing.T) {
	server := start(t)
	server.mesh = catest.NewCA(catest.Options{})
	server.replying(func(leaf, _, root string) []string { return []string{leaf, root} })
	if chain := mustSign(t, mustOpen(t, server.settings(t))); len(chain.Certificates) != 1 {
		t.Errorf("the chain has %d certificates", len(chain.Certificates))
	}
}

func TestLeafAmongRootsIsPassedOn(t *testing.T) {
	server := start(t)
	server.replying(func(l, i, r string) []string { return []string{l, i, r + l} })
	req, _ := ask(t, theToken)
	reply, err := mustOpen(t, server.settings(t)).CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if roots, unusable, err := pki.UsableBundle(reply.Roots); err != nil || roots.Len() != 1 || len(unusable) != 1 {
		t.Errorf("the agent takes %v and leaves out %v (%v); want it to name the leaf", roots, unusable, err)
	}
}

func TestMalformedReplyIsLocatedAndNotRetried(t *testing.T) {
	server := start(t)
	c := mustOpen(t, server.settings(t))
	const begin, end = "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"
	for name, test := range map[string]struct {
		says  string
		reply func(leaf, intermediate, root string) []string
	}{
		"nothing":        {"has 0 elements, want at least two", func(_, _, _ string) []string { return nil }},
		"leaf-only":      {"has 1 elements", func(l, _, _ string) []string { return []string{l} }},
		"all-in-one":     {"has 1 elements", func(l, i, r string) []string { return []string{l + i + r} }},
		"no-root":        {"the last element of the reply's cert_chain has no roots", func(l, i, _ string) []string { return []string{l, i} }},
		"empty-root":     {"has no roots: it holds no PEM block", func(l, i, _ string) []string { return []string{l, i, ""} }},
		"root-first":     {"has no roots", func(l, i, r string) []string { return []string{r, i, l} }},
		"roots-only":     {"has roots and no leaf", func(_, _, r string) []string { return []string{r, r} }},
		"leaf-is-text":   {"element 1 of 3 of the reply's cert_chain: it holds no PEM block", func(_, i, r string) []string { return []string{"hello", i, r} }},
		"garbage-in-pem": {"element 2 of 3 of the reply's cert_chain: PEM block 1 is malformed", func(l, _, r string) []string { return []string{l, begin + "aGVsbG8=\n" + end, r} }},
		"torn-pem":       {"element 2 of 3 of the reply's cert_chain: PEM block 1", func(l, i, r string) []string { return []string{l, i[:len(i)-30], r} }},
		"a-key": {"element 2 of 3 of the reply's cert_chain: PEM block 1 is \"PRIVATE KEY\"", func(l, _, r string) []string {
			return []string{l, "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n", r}
		}},
		"control-characters":  {"element 1 of 2", func(_, _, r string) []string { return []string{"\x1b[31m\x00", r} }},
		"a-thousand-and-one":  {"more than 1000 PEM blocks", func(l, _, r string) []string { return []string{l, strings.Repeat(begin+"aGVsbG8=\n"+end, 1001), r} }},
		"above-a-megabyte":    {"bytes of PEM, 1048576 are allowed", func(l, _, r string) []string { return []string{l, strings.Repeat("x", 1<<20+1), r} }},
		"megabytes":           {"the reply has more than 2097152 bytes", func(l, _, r string) []string { return []string{l, strings.Repeat("x", 3<<20), r} }},
		"megabytes-of-pieces": {"the reply has more than 2097152 bytes", func(l, _, r string) []string { return append(slices.Repeat([]string{l}, 5000), r) }},
	} {
		t.Run(name, func(t *testing.T) {
			server.replying(test.reply)
			mustFail(t, c, ca.ErrInternal, test.says)
			if calls := len(server.calls()); calls != 1 {
				t.Errorf("there were %d calls", calls)
			}
			server.forget()
		})
	}
}

// FuzzReply: however istiod lays its pieces out, a chain without roots comes out
// beside its roots, or an error. A zero byte ends an element.
func FuzzReply(f *testing.F) {
	pieces := map[byte]string{'?': "hello", '-': "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"}
	mesh := catest.NewCA(catest.Options{Intermediates: 1})
	pieces['i'] = string(mesh.IstioFiles()["cert-chain.pem"])
	pieces['r'] = string(mesh.Bundle().PEM())
	pieces['o'] = string(catest.NewCA(catest.Options{}).Bundle().PEM())
	for _, layout := range []string{"", "i\x00r", "iri\x00\x00o", "i\x00i\x00ro", "-\x00r", "i?\x00r?"} {
		f.Add([]byte(layout))
	}
	f.Fuzz(func(t *testing.T, layout []byte) {
		elements := []string{""}
		for _, b := range layout[:min(len(layout), 200)] {
			if b == 0 {
				elements = append(elements, "")
			}
			elements[len(elements)-1] += pieces[b]
		}
		cert, err := certificateOf(elements)
		if err != nil {
			if ca.ReasonFor(err) != ca.Internal {
				t.Errorf("got %v", err)
			}
			return
		}
		roots, _, err := pki.UsableBundle(cert.Roots) // as the agent does
		if err != nil {
			t.Fatal(err)
		}
		certs, err := pki.ParseCertificates(cert.Chain)
		if err != nil || slices.ContainsFunc(certs, roots.Contains) {
			t.Errorf("the chain is %q: %v", cert.Chain, err)
		}
	})
}
