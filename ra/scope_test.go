package ra_test

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// altered is an authority to whose replies something happens.
type altered struct {
	*ratest.CA
	alter func(*ca.Certificate)
}

func (a *altered) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	reply, err := a.CA.CSRSign(ctx, req)
	if err == nil && a.alter != nil {
		a.alter(&reply)
	}
	return reply, err
}

// fault has the reply to one caller fail a check.
type fault struct {
	check   string
	door    string    // default: kubelet
	names   *ra.Names // of the rule; default: a template with attributes that tenants choose
	ask     func(*ra.Request)
	leaf    func(leaf *x509.Certificate)
	reply   func(reply *ca.Certificate)
	permits string // the one domain that the CA may certify; default: any
	whom    string // it stops: "" (the caller alone), "shorter" or "rule"
}

func otherNames(l *x509.Certificate) { l.URIs, l.DNSNames = nil, []string{"other.example.org"} }

func ends(in time.Duration) func(*x509.Certificate) {
	return func(leaf *x509.Certificate) { leaf.NotAfter = time.Now().Add(in) }
}

func lifetime(ttl time.Duration) func(*ra.Request) { return func(r *ra.Request) { r.TTL = ttl } }

var faults = map[string]fault{
	"no certificate":                 {check: "format", reply: func(r *ca.Certificate) { r.Chain = []byte("none") }, whom: "rule"},
	"another key":                    {check: "key", reply: func(r *ca.Certificate) { r.Chain = r.Roots }, whom: "rule"},
	"a CA":                           {check: "ca", leaf: func(l *x509.Certificate) { l.IsCA, l.BasicConstraintsValid = true, true }, whom: "rule"},
	"not for TLS":                    {check: "usage", leaf: func(l *x509.Certificate) { l.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }, whom: "rule"},
	"other names":                    {check: "names", leaf: otherNames, names: &ra.Names{DNSNames: []string{"web.example.org"}}, whom: "rule"},
	"other names than a cluster's":   {check: "names", leaf: otherNames, names: &ra.Names{DNSNames: []string{"web.{cluster}.example.org"}}, whom: "rule"},
	"other names than the account's": {check: "names", leaf: otherNames},
	"other names than the pod's":     {check: "names", leaf: otherNames, names: &ra.Names{DNSNames: []string{"{pod}.pods.example.org"}}},
	"other names, which the CSR has": {check: "names", door: istio, leaf: otherNames, ask: func(r *ra.Request) {
		r.CSR = csr(0, &x509.CertificateRequest{DNSNames: []string{"other.example.org"}})
	}},
	"fewer names than were chosen": {check: "names", leaf: func(l *x509.Certificate) { l.DNSNames = nil }, ask: func(r *ra.Request) {
		r.DNSNames = []string{"a.apps.example.org"}
	}},
	"names that the CA may not certify, which the rule has": {check: "names", permits: "elsewhere.example.org", names: &ra.Names{DNSNames: []string{"web.example.org"}}, whom: "rule"},
	"names that the CA may not certify, which were chosen": {check: "names", permits: "elsewhere.example.org", ask: func(r *ra.Request) {
		r.DNSNames = []string{"a.apps.example.org"}
	}},
	"ended before it was asked for":      {check: "expired", ask: lifetime(2 * time.Hour), leaf: func(l *x509.Certificate) { l.NotBefore = time.Now().Add(-time.Hour); ends(-time.Minute)(l) }, whom: "shorter"},
	"ended while the authority answered": {check: "expired", door: istio, ask: lifetime(time.Second), reply: func(*ca.Certificate) { time.Sleep(2 * time.Second) }},
	"begins too late":                    {check: "not-before", leaf: func(l *x509.Certificate) { l.NotBefore = time.Now().Add(time.Hour) }, whom: "rule"},
	"ends too late":                      {check: "not-after", door: istio, ask: lifetime(time.Hour), leaf: ends(3 * time.Hour), whom: "shorter"},
	"lives too long for the door":        {check: "too-long", ask: lifetime(2 * time.Hour), leaf: ends(2*time.Hour + time.Minute), whom: "shorter"},
	"lives too short for the door":       {check: "lifetime", ask: lifetime(2 * time.Hour), leaf: ends(time.Minute), whom: "shorter"},
	"began too early for the door":       {check: "backdating", leaf: func(l *x509.Certificate) { l.NotBefore = time.Now().Add(-time.Hour) }, whom: "rule"},
	"malformed roots":                    {check: "roots", reply: func(r *ca.Certificate) { r.Roots = []byte("none") }, whom: "rule"},
	"below an unknown root":              {check: "chain", whom: "rule"},
}

// Each check of a reply has a row in the table of scopes, and each row a fault.
func TestScopeOfAFailedCheck(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			rule := mesh()
			if f.names != nil {
				rule.Names = *f.names
			}
			rule.Names.Requested = []string{"*.apps.example.org"}
			authority := &altered{}
			inBubble(t, func(c *ra.Config) {
				c.Policy = policy(t, rule)
				authority.CA = c.Authorities[0].Client.(*ratest.CA)
				c.Authorities[0].Client = authority
			}, func(h *house) {
				req := request()
				if f.door != "" {
					req.Door = f.door
				}
				if f.ask != nil {
					f.ask(&req)
				}
				h.ca.Set(func() {
					h.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
						if f.leaf != nil {
							f.leaf(leaf)
						}
					}
				})
				authority.alter = f.reply
				if f.check == "chain" {
					h.ca.Set(func() { h.ca.Signs = ratest.Root(h.t, "unknown") })
				}
				if f.permits != "" {
					h.ca.Set(func() { h.ca.Constrain(f.permits) })
				}
				_, err := h.issue(req)
				if failed, ok := errors.AsType[*pki.CheckError](err); !ok || failed.Check != f.check {
					h.t.Fatalf("got %v, want the check %q to fail", err, f.check)
				}
				authority.alter = nil
				h.ca.Set(func() { h.ca.Change, h.ca.Signs = nil, h.ca.Root })
				h.scopeIs(f, req)
			})
		})
	}
}

// scopeIs compares what other callers get with what the fault expects.
func (h *house) scopeIs(f fault, req ra.Request) {
	h.t.Helper()
	other := req
	other.Subject.Pod, other.Subject.PodUID, other.CSR, other.DNSNames = "web-2", "uid-2", empty(2), nil
	if _, err := h.issue(other); (err != nil) != (f.whom != "") {
		h.t.Errorf("another caller: %v", err)
	}
	other.Subject.Pod, other.Subject.PodUID, other.CSR, other.TTL = "web-3", "uid-3", empty(3), 20*time.Hour
	if _, err := h.issue(other); (err != nil) != (f.whom == "rule") {
		h.t.Errorf("another caller, for longer: %v", err)
	}
}

func TestEachCheckHasARowAndAFault(t *testing.T) {
	rows := ra.CheckedFor()
	for _, f := range faults {
		if !slices.Contains(rows, f.check) {
			t.Errorf("no row for %q", f.check)
		}
	}
	var found []string
	names := regexp.MustCompile(`(?:failed\(|Check: |fault\()"([a-z-]+)"`)
	for _, pattern := range []string{"*.go", "../sdk/pki/*.go"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names.FindAllSubmatch(text, -1) {
				found = append(found, string(name[1]))
			}
		}
	}
	if len(found) < len(rows) {
		t.Fatalf("found only the checks %q", found)
	}
	for _, check := range found {
		if !slices.Contains(rows, check) {
			t.Errorf("the check %q has no row", check)
		}
	}
	for _, row := range rows {
		if !slices.ContainsFunc(slices.Collect(maps.Values(faults)), func(f fault) bool { return f.check == row }) {
			t.Errorf("the row %q has no fault", row)
		}
	}
}
