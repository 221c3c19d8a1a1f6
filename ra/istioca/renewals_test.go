package istioca_test

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/ra/istioca/internal/chains"
	"github.com/countersign-dev/countersign/ra/share"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// register is a record in memory, which several replicas may keep.
type register struct {
	mu      sync.Mutex
	text    []byte
	version int
	err     error
	hangs   bool
	between func() // happens once, before the next write
}

// Load implements [share.Store].
func (r *register) Load(ctx context.Context) ([]byte, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hangs {
		<-ctx.Done()
		return nil, "", ctx.Err()
	}
	return r.text, strings.Repeat("v", r.version), r.err
}

// Save implements [share.Store].
func (r *register) Save(_ context.Context, text []byte, version string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if between := r.between; between != nil {
		r.between = nil
		between()
	}
	switch {
	case r.err != nil:
		return r.err
	case len(version) != r.version:
		return share.ErrConflict
	}
	r.text, r.version = text, r.version+1
	return nil
}

// longest is not a multiple of a certificate's life.
const longest = 10*24*time.Hour + 5*time.Hour

// renewing lets the machine renew, and what else is listed.
func renewing(record *register, more ...string) func(*mesh, *parts) {
	return func(m *mesh, p *parts) {
		battlefield(m, p)
		p.engine.Budget = ra.Budget{Holder: 1000}
		p.door.Renewals = istioca.Renewals{
			Identities: append([]string{machine}, more...), Longest: longest, Records: []share.Store{record}, Authorities: []string{"ca"}, Roots: m.rootsOf,
		}
	}
}

func (m *mesh) rootsOf(authority string) *pki.Bundle { return m.engine.Roots(authority) }

// rootsBut are those of the CA for another authority, and others for the one of the rules.
func (m *mesh) rootsBut(others *pki.Bundle) func(string) *pki.Bundle {
	return func(authority string) *pki.Bundle {
		if authority == "old" {
			return m.rootsOf("ca")
		}
		return others
	}
}

// holder is a machine with a certificate and no token.
type holder struct {
	*client
	gets
	key crypto.Signer
}

// enrols gets a machine's first certificate.
func (m *mesh) enrols() *holder {
	m.t.Helper()
	return m.takes(m.issuer.token(m.t, machine, nil), wish{identity: machine})
}

// takes gets a certificate with a token.
func (m *mesh) takes(token string, w wish) *holder {
	m.t.Helper()
	conn := m.dial("192.0.2.9")
	defer conn.Close()
	w.key = newKey()
	return m.hold(m.as(conn, token, "").must(w), w.key)
}

// hold connects with a certificate.
func (m *mesh) hold(g gets, key crypto.Signer) *holder {
	return &holder{m.presenting(key, g.leaf, m.ca.Signs.Cert), g, key}
}

// presenting connects with a chain.
func (m *mesh) presenting(key crypto.PrivateKey, chain ...*x509.Certificate) *client {
	with := m.clientTLS()
	cert := tls.Certificate{PrivateKey: key}
	for _, each := range chain {
		cert.Certificate = append(cert.Certificate, each.Raw)
	}
	if len(chain) > 0 {
		with.Certificates = []tls.Certificate{cert}
	}
	conn := m.connect("192.0.2.9", credentials.NewTLS(with))
	m.t.Cleanup(func() { _ = conn.Close() })
	return &client{t: m.t, conn: conn, metadata: []string{"clusterid", home}} // as agents have it, wherever they are
}

// renews is the machine with its next certificate.
func (m *mesh) renews(h *holder) *holder {
	m.t.Helper()
	key := newKey()
	next := h.must(wish{identity: machine, key: key})
	return m.hold(next, key)
}

// denies demands a refusal with a sentence.
func (h *holder) denies(told string) {
	h.t.Helper()
	if st := h.refused(wish{identity: machine}, codes.PermissionDenied); !strings.Contains(st.Message(), told) {
		h.t.Errorf("the client gets: %s", st.Message())
	}
}

func TestMachineRenewsWithoutATokenUntilTheBound(t *testing.T) {
	log := &ratest.Audit{}
	inBubble(t, func(m *mesh, p *parts) {
		renewing(&register{})(m, p)
		p.engine.Audit = log
	}, func(t *testing.T, m *mesh) {
		began := time.Now()
		h, n := m.enrols(), 0
		for ; ; n++ {
			time.Sleep(time.Until(h.leaf.NotAfter) / 2)
			key := newKey()
			next, err := h.ask(wish{identity: machine, key: key})
			if err != nil {
				break
			}
			if m.last() != istioca.Renewed {
				t.Fatalf("the event is %q", m.last())
			}
			h = m.hold(next, key)
		}
		h.denies("present a token")
		if over := h.leaf.NotAfter.Sub(began); over > longest+time.Minute || over < longest-time.Hour || n < 15 || n > 25 {
			t.Errorf("%d renewals, the last certificate ends after %s", n, over)
		}
		if text := log.String(); !strings.Contains(text, `"verified":"client certificate, serial 66; token of an OIDC issuer at 2000-01-01T00:00:00Z"`) {
			t.Error(text)
		}
		m.renews(m.enrols())
	})
}

func TestNeitherOfTwoCopiesRenews(t *testing.T) {
	log := &ratest.Audit{}
	inBubble(t, func(m *mesh, p *parts) {
		renewing(&register{})(m, p)
		p.engine.Audit = log
	}, func(t *testing.T, m *mesh) {
		// The thief is first, and the machine comes with what it has.
		h := m.enrols()
		thief := m.renews(h)
		thief = m.renews(thief)
		h.denies("possible copy")
		if m.last() != istioca.Copied {
			t.Errorf("the event is %q", m.last())
		}
		thief.denies("possible copy")
		// Both renew by the same, and come with what they got.
		h = m.enrols()
		thief, mine := m.renews(h), m.renews(h)
		m.renews(mine)
		thief.denies("possible copy")
		mine.denies("possible copy")
		h.denies("possible copy")
		if !strings.Contains(log.String(), "possible copy") {
			t.Error("the audit log does not say so")
		}
		m.renews(m.enrols()) // a token goes on
	})
}

// A reply that was lost, or a CA that failed, ends no chain.
func TestMachineMayRenewAgainByTheSameCertificate(t *testing.T) {
	inBubble(t, renewing(&register{}), func(_ *testing.T, m *mesh) {
		h := m.enrols()
		m.renews(h)
		m.ca.Fail(away)
		h.refused(wish{identity: machine}, codes.Unavailable)
		m.ca.Fail(nil)
		time.Sleep(time.Minute)
		h = m.renews(h)
		m.renews(h)
	})
}

// theft is a client that must get nothing.
type theft struct {
	of   *client
	wish wish
	code codes.Code
	told string
}

func (m *mesh) thefts() map[string]theft {
	t, issuing := m.t, m.ca.Signs
	made := func(by *certtest.Pair, change func(*x509.Certificate), uris ...string) *client {
		template := certtest.Leaf(t, time.Hour, uris...)
		template.DNSNames = nil
		if change != nil {
			change(template)
		}
		pair := by.Issue(t, template)
		return m.presenting(pair.Key, pair.Cert, issuing.Cert)
	}
	sibling := m.ca.Root.Issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "another"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SerialNumber: big.NewInt(3),
	})
	beside := sibling.Leaf(t, time.Hour, machine)
	long := make([]*x509.Certificate, 11)
	h := m.enrols()
	for i := range long {
		long[i] = issuing.Cert
	}
	long[0] = h.leaf
	spoilt := func(pairs ...string) *client {
		c := *m.enrols().client
		c.metadata = pairs
		return &c
	}
	pod, proxied := m.takes("web-token", wish{identity: web}), m.takes("ztunnel-token", impersonating(web))
	const stranger, denied = codes.Unauthenticated, codes.PermissionDenied
	return map[string]theft{
		"a self-signed one with the same name":    {of: made(nil, nil, machine), code: stranger, told: nothing},
		"one of another CA":                       {of: made(certtest.Root(t), nil, machine), code: stranger, told: nothing},
		"an expired one":                          {of: made(issuing, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }, machine), code: stranger, told: nothing},
		"one that is not valid yet":               {of: made(issuing, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, machine), code: stranger, told: nothing},
		"a server's":                              {of: made(issuing, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, machine), code: stranger, told: nothing},
		"a CA's":                                  {of: made(issuing, func(c *x509.Certificate) { c.IsCA = true }, machine), code: stranger, told: nothing},
		"one with two SPIFFE IDs":                 {of: made(issuing, nil, machine, web), code: stranger, told: nothing},
		"one without any":                         {of: made(issuing, nil), code: stranger, told: nothing},
		"one with a URI of another form":          {of: made(issuing, nil, "https://vm.example.org/host/db-1"), code: stranger, told: nothing},
		"one without its intermediate":            {of: m.presenting(h.key, h.leaf), code: stranger, told: nothing},
		"a chain of eleven":                       {of: m.presenting(h.key, long...), code: stranger, told: nothing},
		"no certificate":                          {of: m.presenting(h.key), code: stranger, told: nothing},
		"a good one with a token that fails":      {of: spoilt("authorization", "Bearer made-up"), code: stranger, told: nothing},
		"a good one with an expired token":        {of: spoilt("authorization", "Bearer "+m.issuer.token(t, machine, func(_, c map[string]any) { c["exp"] = 1 })), code: stranger, told: nothing},
		"a good one with an empty token":          {of: spoilt("authorization", "Bearer "), code: stranger, told: nothing},
		"a good one with two tokens":              {of: spoilt("authorization", "Bearer a", "authorization", "Bearer b"), code: stranger, told: nothing},
		"a good one with a password":              {of: spoilt("authorization", "Basic eDp5"), code: stranger, told: nothing},
		"a good one with two ClusterIDs":          {of: spoilt("clusterid", "vm", "clusterid", "vm"), code: stranger, told: nothing},
		"one of this CA that no token began":      {of: made(issuing, nil, machine), code: denied, told: "no token began"},
		"one of another CA below the same root":   {of: m.presenting(beside.Key, beside.Cert, sibling.Cert), code: denied, told: "no token began"},
		"one that is not listed":                  {of: made(issuing, nil, ztunnel), code: denied, told: "not renewed"},
		"one whose name begins like a listed one": {of: made(issuing, nil, machine+"1"), code: denied, told: "not renewed"},
		"a pod's":                             {of: pod.client, wish: wish{identity: web}, code: denied, told: "no token began"},
		"one that a node proxy fetched":       {of: proxied.client, wish: wish{identity: web}, code: denied, told: "no token began"},
		"a good one that impersonates":        {of: m.enrols().client, wish: impersonating(web), code: denied, told: "reviewed"},
		"a good one that impersonates itself": {of: m.enrols().client, wish: impersonating(machine), code: denied, told: "reviewed"},
		"a good one with a CertSigner":        {of: m.enrols().client, wish: wish{identity: machine, fields: map[string]any{"CertSigner": "fast"}}, code: denied, told: "no rule matches"},
	}
}

func TestStolenAndForeignCertificatesGetNothing(t *testing.T) {
	inBubble(t, renewing(&register{}, web), func(t *testing.T, m *mesh) {
		all := m.thefts()
		before := len(m.ca.Requests())
		for name, theft := range all {
			if theft.wish.identity == "" {
				theft.wish.identity = machine
			}
			st := theft.of.refused(theft.wish, theft.code)
			if !strings.Contains(st.Message(), theft.told) || theft.told == nothing && st.Message() != nothing {
				t.Errorf("%s: the client gets: %s", name, st.Message())
			}
			if len(m.ca.Requests()) != before {
				t.Fatalf("%s: the CA was asked", name)
			}
		}
	})
}

// A token that is bound to a pod begins no chain, whichever authenticator verified it.
func TestPodsBeginNoRenewals(t *testing.T) {
	inBubble(t, renewing(&register{}, web), func(t *testing.T, m *mesh) {
		m.clusters[home].account("account-token", "shop", "web", "", "")
		h := m.takes("account-token", wish{identity: web})
		h.must(wish{identity: web})
		bound := m.issuer.token(t, "system:serviceaccount:shop:web", func(_, claims map[string]any) {
			claims["kubernetes.io"] = map[string]any{
				"namespace": "shop", "serviceaccount": map[string]any{"name": "web", "uid": "s"}, "pod": map[string]any{"name": "web-0", "uid": "p"},
			}
		})
		if err := m.server.Replace(m.door(func(d *istioca.Config) { d.IssuerClusters = map[string]string{m.issuer.URL: home} })); err != nil {
			t.Fatal(err)
		}
		h = m.takes(bound, wish{identity: web})
		h.refused(wish{identity: web}, codes.PermissionDenied)
	})
}

func TestWhoIsTakenOutRenewsNoMore(t *testing.T) {
	inBubble(t, renewing(&register{}, web), func(t *testing.T, m *mesh) {
		m.clusters[home].account("account-token", "shop", "web", "", "")
		for name, test := range map[string]struct {
			take func(d *istioca.Config)
			code codes.Code
		}{
			"the identity":         {func(d *istioca.Config) { d.Renewals.Identities = []string{ztunnel} }, codes.PermissionDenied},
			"all identities":       {func(d *istioca.Config) { d.Renewals.Identities = nil }, codes.Unauthenticated},
			"the issuer":           {func(d *istioca.Config) { d.IssuerClusters = nil }, codes.PermissionDenied},
			"the issuer's cluster": {func(d *istioca.Config) { d.IssuerClusters = map[string]string{m.issuer.URL: "other"} }, codes.PermissionDenied},
			"the authority": {func(d *istioca.Config) {
				d.Renewals.Roots = func(string) *pki.Bundle { return pki.NewBundle(m.root.Cert) }
			}, codes.Unauthenticated},
			"the roots, for a moment": {func(d *istioca.Config) { d.Renewals.Roots = func(string) *pki.Bundle { return nil } }, codes.Unavailable},
			"the authority of the rule": {func(d *istioca.Config) {
				d.Renewals.Authorities, d.Renewals.Roots = []string{"ca", "old"}, m.rootsBut(pki.NewBundle(m.root.Cert))
			}, codes.PermissionDenied},
			"the roots of the rule": {func(d *istioca.Config) {
				d.Renewals.Authorities, d.Renewals.Roots = []string{"ca", "old"}, m.rootsBut(nil)
			}, codes.Unavailable},
			"the time": {func(d *istioca.Config) { d.Renewals.Longest = time.Minute }, codes.PermissionDenied},
		} {
			h := m.enrols()
			m.renews(h)
			if err := m.server.Replace(m.door(test.take)); err != nil {
				t.Fatal(err)
			}
			if _, err := h.ask(wish{identity: machine}); status.Code(err) != test.code {
				t.Errorf("without %s: %v", name, err)
			}
			if err := m.server.Replace(m.door(nil)); err != nil {
				t.Fatal(err)
			}
			h.must(wish{identity: machine})
		}
		h := m.takes("account-token", wish{identity: web})
		if err := m.server.Replace(m.door(func(d *istioca.Config) {
			d.Renewals.Reviewed = func(cluster string) bool { return cluster != home }
		})); err != nil {
			t.Fatal(err)
		}
		h.refused(wish{identity: web}, codes.PermissionDenied)
	})
}

func TestPolicyMustGiveWhatTheCertificateHas(t *testing.T) {
	inBubble(t, renewing(&register{}), func(t *testing.T, m *mesh) {
		h := m.enrols()
		for _, change := range []func(r []ra.Rule) []ra.Rule{
			func(r []ra.Rule) []ra.Rule { return r[:3] },
			func(r []ra.Rule) []ra.Rule { r[3].Names.SPIFFEID = machine + "2"; return r },
			func(r []ra.Rule) []ra.Rule { r[3].Names.DNSNames = []string{"db.example.org"}; return r },
		} {
			if err := m.engine.SetPolicy(must(ra.NewPolicy(home, change(rules())))); err != nil {
				t.Fatal(err)
			}
			h.refused(wish{identity: machine}, codes.PermissionDenied)
		}
	})
}

// An unreadable record is never a yes, and costs no certificate.
func TestRecordThatCannotBeReadAllowsNothing(t *testing.T) {
	record := &register{}
	inBubble(t, renewing(record), func(t *testing.T, m *mesh) {
		h := m.enrols()
		h = m.renews(h)
		good := record.text
		before := len(m.ca.Requests())
		for name, spoil := range map[string]func(){
			"away":      func() { record.err = errors.New("503") },
			"hangs":     func() { record.hangs = true },
			"empty":     func() { record.text = nil },
			"malformed": func() { record.text = []byte("{") },
			"newer":     func() { record.text = []byte(`{"version":2}`) },
			"another":   func() { record.text = []byte(`{"chains":[]}`) },
			"large":     func() { record.text = make([]byte, 1<<20) },
			"ahead":     func() { record.text = []byte(strings.ReplaceAll(string(good), `"last":"2000`, `"last":"2001`)) },
		} {
			time.Sleep(time.Second) // what was read a moment ago counts
			began, version := time.Now(), record.version
			spoil()
			h.refused(wish{identity: machine}, codes.Unavailable)
			if s := m.server.RenewalsStatus(); s.Err == nil && name != "ahead" {
				t.Errorf("%s: it is not reported", name)
			}
			if took := time.Since(began); took > 0 && !record.hangs || took > 10*time.Second {
				t.Errorf("%s: it took %s", name, took)
			}
			if record.version != version && name != "ahead" {
				t.Errorf("%s: the record was replaced", name)
			}
			record.text, record.err, record.hangs = good, nil, false
		}
		if len(m.ca.Requests()) != before {
			t.Error("the CA was asked")
		}
		time.Sleep(time.Second) // as above
		m.renews(h)
		record.text, record.version = nil, 0
		time.Sleep(time.Second)
		h.denies("no token began")
	})
}

// What could not be written down is not given out.
func TestCertificateIsGivenOutOnlyOnceItIsWrittenDown(t *testing.T) {
	record := &register{}
	inBubble(t, renewing(record), func(_ *testing.T, m *mesh) {
		h := m.enrols()
		h = m.renews(h)
		m.renews(h) // presented now, so that only the next certificate is to be written
		record.between = func() { record.err = errors.New("503") }
		h.refused(wish{identity: machine}, codes.Unavailable)
		conn := m.dial("192.0.2.9")
		defer conn.Close()
		m.as(conn, m.issuer.token(m.t, machine, nil), "").refused(wish{identity: machine}, codes.Unavailable)
		record.err = nil
		m.renews(h)
		// Another replica comes first.
		record.between = func() { record.version++ }
		m.renews(h)
	})
}

func TestTwoReplicasKeepOneRecord(t *testing.T) {
	record := &register{}
	inBubble(t, renewing(record), func(t *testing.T, one *mesh) {
		two := newMesh(t, func(m *mesh, p *parts) {
			renewing(record)(m, p)
			m.ca, m.issuer = one.ca, one.issuer
			p.door.Tokens, p.door.IssuerClusters = []authn.Named{{Name: "oidc", Authenticator: one.issuer.verifier}}, map[string]string{one.issuer.URL: "vm"}
			p.engine.Authorities[0].Client = one.ca
		})
		defer two.close()
		two.enrols() // it learns the roots
		h := one.enrols()
		there := two.hold(h.gets, h.key)
		first, second := one.renews(h), two.renews(there)
		second = one.renews(second)
		one.hold(first.gets, first.key).denies("possible copy")
		two.hold(second.gets, second.key).denies("possible copy")
	})
}

// A chain has a bound of certificates that have not expired.
func TestMachineDoesNotFillTheRecord(t *testing.T) {
	inBubble(t, renewing(&register{}), func(t *testing.T, m *mesh) {
		h := m.enrols()
		for range 31 {
			m.renews(h)
		}
		before := len(m.ca.Requests())
		h.refused(wish{identity: machine}, codes.ResourceExhausted)
		if n := len(m.ca.Requests()) - before; n > 0 {
			t.Errorf("%d certificates were asked for", n)
		}
		time.Sleep(25 * time.Hour)
		m.renews(m.enrols())
	})
}

// fullFor returns a record without room for another chain of an identity.
func fullFor(t *testing.T, identity string) []byte {
	full := &chains.Record{Version: 1}
	for n := range 500 {
		first := chains.Certificate{ID: fmt.Sprint(n), Ends: time.Now().Add(24 * time.Hour)}
		if err := full.Begin(chains.Chain{Identity: identity}, first, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	return must(full.Encode())
}

// A token is good for a certificate also if that cannot be renewed without one.
func TestTokenGetsACertificateWhileTheRecordIsFull(t *testing.T) {
	record, log := &register{}, &ratest.Audit{}
	inBubble(t, func(m *mesh, p *parts) {
		renewing(record)(m, p)
		p.engine.Audit = log
	}, func(t *testing.T, m *mesh) {
		record.text = fullFor(t, machine)
		h := m.enrols()
		if m.last() != istioca.Unrenewable {
			t.Errorf("the event is %q", m.last())
		}
		const why = "500 chains of renewals"
		if text := m.log.String(); !strings.Contains(text, "cannot be renewed without a token") || !strings.Contains(text, why) {
			t.Errorf("the log has %s", text)
		}
		if text := log.String(); strings.Count(text, `"event":"noted"`) != 1 || !strings.Contains(text, why) || strings.Contains(text, "withheld") {
			t.Errorf("the audit log has %s", text)
		}
		h.denies("no token began")
		if n := len(m.ca.Requests()); n != 1 {
			t.Errorf("%d certificates were asked for", n)
		}
		record.text = nil
		time.Sleep(time.Second)
		m.renews(m.enrols())
		time.Sleep(time.Second)
		record.err = errors.New("503") // the record is unreadable
		before := len(m.ca.Requests())
		conn := m.dial("192.0.2.9")
		defer conn.Close()
		m.as(conn, m.issuer.token(t, machine, nil), "").refused(wish{identity: machine}, codes.Unavailable)
		if n := len(m.ca.Requests()) - before; n > 0 {
			t.Errorf("%d certificates were asked for", n)
		}
	})
}

// A renewal that the record cannot take is refused before the CA is asked.
func TestRenewalCostsNoCertificateThatTheRecordCannotTake(t *testing.T) {
	record := &register{}
	inBubble(t, renewing(record), func(t *testing.T, m *mesh) {
		h := m.enrols()
		full := must(chains.Parse(record.text))
		for n := 0; ; n++ { // the namespace of the machine has as much as it may
			next := chains.Certificate{ID: fmt.Sprint(n), Ends: time.Now().Add(24 * time.Hour)}
			if err := full.Continue(full.Chains[len(full.Chains)-1].ID, next, next.Ends, time.Now()); err == nil {
				continue
			}
			c := *full.Chains[0]
			c.Identity = fmt.Sprint(machine, n)
			if err := full.Begin(c, next, time.Now()); err != nil {
				break
			}
		}
		record.text = must(full.Encode())
		time.Sleep(time.Second)
		before := len(m.ca.Requests())
		for range 3 {
			h.refused(wish{identity: machine}, codes.ResourceExhausted)
		}
		if n := len(m.ca.Requests()) - before; n > 0 {
			t.Errorf("%d certificates were asked for", n)
		}
		time.Sleep(25 * time.Hour)
		m.renews(m.enrols())
	})
}

// slowRegister answers like an API server under load.
type slowRegister struct{ register }

func (r *slowRegister) Load(ctx context.Context) ([]byte, string, error) {
	time.Sleep(20 * time.Millisecond)
	return r.register.Load(ctx)
}

func (r *slowRegister) Save(ctx context.Context, text []byte, version string) error {
	time.Sleep(20 * time.Millisecond)
	return r.register.Save(ctx, text, version)
}

// Each certificate that is signed for a machine that enrolls can be renewed.
func TestMachinesThatEnrollTogetherLoseNoCertificate(t *testing.T) {
	record, log := &slowRegister{}, &ratest.Audit{}
	inBubble(t, func(m *mesh, p *parts) {
		renewing(&record.register)(m, p)
		p.door.Renewals.Records = []share.Store{record}
		p.door.Limits.CallsOfCaller = 1000
		p.engine.Audit = log
	}, func(t *testing.T, m *mesh) {
		machines := 480
		if testing.Short() {
			machines = 60
		}
		var all []<-chan error
		for i := range machines {
			conn := m.dial("192.0.2.9")
			defer conn.Close()
			token := m.issuer.token(t, machine, func(_, claims map[string]any) { claims["jti"] = fmt.Sprint(i) })
			all = append(all, m.as(conn, token, "").begin(t.Context(), wish{identity: machine}))
		}
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := strings.Count(log.String(), `"event":"withheld"`); n > 0 {
			t.Errorf("%d certificates were withheld", n)
		}
		if n := len(must(chains.Parse(record.text)).Chains); n != machines {
			t.Errorf("%d chains were written in %d writes", n, record.version)
		}
		t.Logf("%d writes", record.version)
	})
}

// What is presented is looked up at most once a second, however many callers present it.
func TestPresentingCertificatesDoesNotFloodTheAPIServer(t *testing.T) {
	record := &counted{}
	inBubble(t, func(m *mesh, p *parts) {
		renewing(&record.register, web)(m, p)
		p.door.Renewals.Records = []share.Store{record}
	}, func(t *testing.T, m *mesh) {
		h := m.enrols()
		pod := m.takes("web-token", wish{identity: web})
		m.ca.Fail(away)
		began, before := time.Now(), record.loads
		var all []<-chan error
		for range 50 {
			all = append(all, pod.begin(t.Context(), wish{identity: web}), h.begin(t.Context(), wish{identity: machine}))
		}
		for _, done := range all {
			if err := <-done; err == nil {
				t.Error("it has a certificate")
			}
		}
		if n, most := record.loads-before, int(time.Since(began)/time.Second)+1; n > most {
			t.Errorf("the record was read %d times in %s", n, time.Since(began))
		}
	})
}

// counted counts how often it is read.
type counted struct {
	register
	loads int
}

func (r *counted) Load(ctx context.Context) ([]byte, string, error) {
	r.mu.Lock()
	r.loads++
	r.mu.Unlock()
	return r.register.Load(ctx)
}

// An authority that fixes lifetimes cannot keep the bound, so its chain ends.
func TestCertificateThatOutlivesTheBoundEndsTheChain(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		renewing(&register{})(m, p)
		p.engine.Authorities[0].AcceptLongerTTL = new(true)
		m.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
			leaf.NotAfter = time.Now().Add(7 * 24 * time.Hour)
		}
	}, func(t *testing.T, m *mesh) {
		h := m.enrols()
		time.Sleep(4 * 24 * time.Hour)
		before := len(m.ca.Requests())
		for range 3 {
			h.denies("last longer")
		}
		if n := len(m.ca.Requests()) - before; n != 1 {
			t.Errorf("%d certificates were asked for", n)
		}
	})
}

func TestCertificateIsAskedForOnlyWhereSomeAreRenewed(t *testing.T) {
	for _, test := range []struct {
		change func(*mesh, *parts)
		asked  bool
	}{{battlefield, false}, {renewing(&register{}), true}} {
		inBubble(t, test.change, func(t *testing.T, m *mesh) {
			asked := false
			with := m.clientTLS()
			with.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return &tls.Certificate{}, nil
			}
			conn := m.connect("192.0.2.1", credentials.NewTLS(with))
			defer conn.Close()
			m.as(conn, "web-token", home).must(wish{identity: web})
			if asked != test.asked {
				t.Errorf("asked is %t", asked)
			}
		})
	}
}

func TestWrongRenewalsAreRefused(t *testing.T) {
	good := istioca.Renewals{Identities: []string{machine, "spiffe://vm.example.org/host/*"}, Records: []share.Store{&register{}, &register{}}, Authorities: []string{"ca"}, Roots: func(string) *pki.Bundle { return nil }}
	inBubble(t, renewing(&register{}), func(t *testing.T, m *mesh) {
		for want, change := range map[string]func(r *istioca.Renewals){
			"":                     func(*istioca.Renewals) {},
			"Longest":              func(r *istioca.Renewals) { r.Longest = -1 },
			"Records, Authoritie":  func(r *istioca.Renewals) { r.Records = nil },
			"Records, Authorities": func(r *istioca.Renewals) { r.Records = []share.Store{nil} },
			"Identities":           func(r *istioca.Renewals) { r.Identities = []string{"spiffe://vm.example.org/host*"} },
			"Config.Renewals.Ide":  func(r *istioca.Renewals) { r.Identities = []string{"*"} },
		} {
			r := good
			change(&r)
			err := m.server.Replace(m.door(func(d *istioca.Config) { d.Renewals = r }))
			if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", want, err)
			}
		}
	})
}
