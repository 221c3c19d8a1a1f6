package googleca

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"cloud.google.com/go/security/privateca/apiv1/privatecapb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// replying has the next order answered with what f makes of a good reply.
func (s *service) replying(f func(leaf, intermediate, root string) (string, []string)) {
	s.next(func(ctx context.Context, order *privatecapb.CreateCertificateRequest) (*privatecapb.Certificate, error) {
		leaf, err := s.sign(ctx, order.GetCertificate())
		if err != nil {
			return nil, err
		}
		files := s.pool.IstioFiles()
		pemCertificate, chain := f(leaf, string(files["ca-cert.pem"]), string(files["root-cert.pem"]))
		return &privatecapb.Certificate{PemCertificate: pemCertificate, PemCertificateChain: chain}, nil
	})
}

func TestChainIsLeafAndIntermediatesWithoutRoot(t *testing.T) {
	server := start(t)
	c := server.open(t, server.settings())
	for name, test := range map[string]struct {
		reply func(leaf, intermediate, root string) (string, []string)
		roots bool
	}{
		"leaf-intermediate-root": {func(l, i, r string) (string, []string) { return l, []string{i, r} }, true},
		"chain-in-one-element":   {func(l, i, r string) (string, []string) { return l, []string{i + r} }, true},
		"no-line-break-at-an-end": {func(l, i, r string) (string, []string) {
			return strings.TrimSpace(l), []string{i, strings.TrimSpace(r)}
		}, true},
		"root-twice":    {func(l, i, r string) (string, []string) { return l, []string{i, r, r} }, true},
		"root-left-out": {func(l, i, _ string) (string, []string) { return l, []string{i} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			server.replying(test.reply)
			req, check := ask(t)
			reply, err := c.CSRSign(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(reply.Roots) > 0; got != test.roots {
				t.Errorf("the reply has the roots %q", reply.Roots)
			}
			reply.Roots = server.pool.Bundle().PEM() // where it had none, the host got an error
			if chain := testkit.Passes(t, reply, check); len(chain.Certificates) != 2 {
				t.Errorf("%d certificates in the chain", len(chain.Certificates))
			}
		})
	}
}

func TestLeafSignedByRootNeedsNoIntermediate(t *testing.T) {
	server := start(t)
	server.pool = catest.NewCA(catest.Options{})
	server.replying(func(leaf, _, root string) (string, []string) { return leaf, []string{root} })
	if chain := mustSign(t, server.open(t, server.settings())); len(chain.Certificates) != 1 {
		t.Errorf("the chain has %d certificates", len(chain.Certificates))
	}
}

func TestMalformedReplyIsLocated(t *testing.T) {
	server := start(t)
	c := server.open(t, server.settings())
	const begin, end = "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"
	for name, test := range map[string]struct {
		says  string
		reply func(leaf, intermediate, root string) (string, []string)
	}{
		"nothing":        {"the reply's pem_certificate: it holds no PEM block", func(_, _, _ string) (string, []string) { return "", nil }},
		"leaf-is-text":   {"the reply's pem_certificate: it holds no PEM block", func(_, i, r string) (string, []string) { return "hello", []string{i, r} }},
		"leaf-left-out":  {"the reply's pem_certificate", func(_, i, r string) (string, []string) { return "", []string{i, r} }},
		"root-alone":     {"the reply has a root and no leaf", func(_, _, r string) (string, []string) { return r, nil }},
		"empty-element":  {"element 2 of the reply's pem_certificate_chain: it holds no PEM block", func(l, i, _ string) (string, []string) { return l, []string{i, ""} }},
		"garbage-in-pem": {"element 1 of the reply's pem_certificate_chain: PEM block 1 is malformed", func(l, _, r string) (string, []string) { return l, []string{begin + "aGVsbG8=\n" + end, r} }},
		"torn-pem":       {"element 1 of the reply's pem_certificate_chain", func(l, i, r string) (string, []string) { return l, []string{i[:len(i)-30], r} }},
		"a-key": {`element 1 of the reply's pem_certificate_chain: PEM block 1 is "PRIVATE KEY"`, func(l, _, r string) (string, []string) {
			return l, []string{"-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n", r}
		}},
		"control-characters": {"pem_certificate", func(_, i, r string) (string, []string) { return "\x1b[31m\x00", []string{i, r} }},
		"above-a-megabyte":   {"bytes of PEM, 1048576 are allowed", func(l, _, r string) (string, []string) { return l, []string{strings.Repeat("x", 1<<20+1), r} }},
		"megabytes":          {"larger than max", func(l, _, r string) (string, []string) { return l, []string{strings.Repeat("x", 3<<20), r} }},
	} {
		t.Run(name, func(t *testing.T) {
			server.replying(test.reply)
			mustFail(t, c, ca.ErrInternal, thePool, test.says)
			server.last(t)
		})
	}
}

func TestRootsAreLastOfChainsSortedAndUnique(t *testing.T) {
	server, log := start(t), &testkit.Log{}
	settings := server.settings()
	settings.Log = log.Logger()
	c := server.open(t, settings)
	mustSign(t, c) // its token is what the roots are asked for with
	other := catest.NewCA(catest.Options{})
	one, two := server.pool.IstioFiles(), other.IstioFiles()
	intermediate, root, second := string(one["ca-cert.pem"]), string(one["root-cert.pem"]), string(two["root-cert.pem"])
	brainpool, err := os.ReadFile("testdata/brainpool.pem")
	if err != nil {
		t.Fatal(err)
	}
	want := string(server.pool.Bundle().Union(other.Bundle()).PEM())
	for name, test := range map[string]struct {
		chains [][]string
		warns  bool
	}{
		"two-cas":                {[][]string{{intermediate, root}, {second}}, false},
		"the-other-order":        {[][]string{{second}, {intermediate, root}}, false},
		"repeated":               {[][]string{{second}, {intermediate, root}, {root}, {second}}, false},
		"chain-in-one-element":   {[][]string{{intermediate + root}, {second}}, false},
		"a-chain-of-nothing":     {[][]string{{}, {intermediate, root}, {second}}, false},
		"a-chain-without-a-root": {[][]string{{intermediate}, {intermediate, root}, {second}}, true},
		"a-root-go-cannot-read":  {[][]string{{string(brainpool)}, {intermediate, root}, {second}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server.set(func() { server.chains = func() [][]string { return test.chains } })
			got, err := c.Roots(t.Context())
			if err != nil || string(got) != want {
				t.Errorf("got %s, %v", got, err)
			}
			if text := log.Take(); strings.Contains(text, "ignoring a CA whose") != test.warns {
				t.Errorf("logged %q", text)
			}
		})
	}
	for says, chains := range map[string][][]string{
		"the pool has no CA with a root":                  {{}, {intermediate}},
		"the pool has no CA":                              nil,
		"the last certificate of CA chain 2: it holds no": {{root}, {root, "hello"}},
	} {
		server.set(func() { server.chains = func() [][]string { return chains } })
		_, err := c.Roots(t.Context())
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), thePool) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// FuzzReply: however the service lays its pieces out, a chain without its root comes
// out, or an error. A zero byte ends an element.
func FuzzReply(f *testing.F) {
	pieces := map[byte]string{'?': "hello", '-': "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"}
	mesh := catest.NewCA(catest.Options{Intermediates: 1})
	pieces['i'] = string(mesh.IstioFiles()["ca-cert.pem"])
	pieces['r'] = string(mesh.Bundle().PEM())
	for _, layout := range []string{"", "i\x00r", "i\x00i\x00r", "r", "-\x00r", "i?\x00r?"} {
		f.Add([]byte(layout))
	}
	p := &pool{rootState: newRootState()}
	f.Fuzz(func(t *testing.T, layout []byte) {
		elements := []string{""}
		for _, b := range layout[:min(len(layout), 200)] {
			if b == 0 {
				elements = append(elements, "")
			}
			elements[len(elements)-1] += pieces[b]
		}
		cert, err := p.certificateOf(&privatecapb.Certificate{PemCertificate: elements[0], PemCertificateChain: elements[1:]})
		if err != nil {
			if ca.ReasonFor(err) != ca.Internal {
				t.Errorf("got %v", err)
			}
			return
		}
		certs, err := pki.ParseCertificates(cert.Chain)
		if err != nil || rootOf(certs[len(certs)-1]).Len() > 0 || len(cert.Roots) > 0 && bytes.Contains(cert.Chain, cert.Roots) {
			t.Errorf("the chain is %q: %v", cert.Chain, err)
		}
	})
}
