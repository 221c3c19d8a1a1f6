package secret_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestWrongReplyIsNeverServed(t *testing.T) {
	stranger := catest.NewCA(catest.Options{}).Bundle()
	for name, c := range map[string]struct {
		spoil func(*catest.Draft)
		fails string
	}{
		"wrong-key":         {catest.WrongKey, "key"},
		"wrong-name":        {catest.WrongName, "names"},
		"leaf-ca-true":      {catest.LeafIsCA, "ca"},
		"wrong-usage":       {catest.WrongUsage, "usage"},
		"expired":           {catest.Expired, "expired"},
		"not-yet-valid":     {catest.NotYetValid, "not-before"},
		"too-long":          {catest.TooLong, "not-after"},
		"no-intermediates":  {catest.NoIntermediates, "chain"},
		"no-roots":          {catest.NoRoots, "roots"},
		"other-authority":   {catest.OtherAuthority, "chain"},
		"other-roots":       {func(d *catest.Draft) { d.Roots = stranger }, "chain"},
		"intermediate-root": {func(d *catest.Draft) { d.Roots = pki.NewBundle(d.Above[0]) }, "roots"},
	} {
		t.Run(name+".pem", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				authority := catest.NewCA(catest.Options{Intermediates: 1})
				authority.Next(1, catest.Fault{Break: c.spoil})
				e := newEngine(t, func(c *secret.Config) { c.Authorities[0].Client = signOnly{authority} })
				e.notReady("default")
				e.notReady("ROOTCA") // roots of a wrong reply are not taken either
				if e.count(secret.Failed, c.fails) != 1 {
					t.Errorf("want the check %q to fail: %v\n%s", c.fails, e.events, e.logged())
				}
				after(7 * time.Second)
				e.notReady("default")
				after(6 * time.Second)
				e.held("default")
				if got := authority.Requests(); len(got) != 2 || got[0].ID == got[1].ID {
					t.Error("want one more request, and another order: an authority that knows the first would repeat itself")
				}
			})
		})
	}
}

func TestWrongSuccessorKeepsHeldSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		first, roots := e.held("default"), e.held("ROOTCA")
		e.ca.Always(catest.Fault{Break: catest.OtherAuthority})
		after(first.NotAfter.Sub(e.now()) - time.Second)
		if e.held("default") != first || e.held("ROOTCA") != roots {
			t.Error("something of a wrong reply is served")
		}
		if n := len(e.ca.Requests()); n < 10 || n > 100 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestRequestNamesItsRequester(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) { c.Authorities[0].Requester = "agent on host-7" })
		if got := e.requests(1)[0].Requester; got != "agent on host-7, secret default" {
			t.Errorf("got %q", got)
		}
	})
}

func TestLongerLifetimeCanBeAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].AcceptLongerTTL = new(true)
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Break: catest.TooLong})
		})
		e.held("default")
	})
}

// stated is a CA whose provider states facts.
type stated struct {
	*catest.CA
	facts ca.Facts
}

func (s stated) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	cert, err := s.CA.CSRSign(ctx, req)
	cert.Facts = s.facts
	return cert, err
}

func TestStatedFactsAreDefaultsThatTheOperatorOverrides(t *testing.T) {
	for name, test := range map[string]struct {
		facts  ca.Facts
		broken func(*catest.Draft)
		change func(*secret.Authority)
		taken  bool
	}{
		"longer":             {ca.Facts{FixedLifetime: true}, catest.TooLong, nil, true},
		"longer, not stated": {ca.Facts{NameMatch: ca.MatchAny}, catest.TooLong, nil, false},
		"longer, overridden": {ca.Facts{FixedLifetime: true}, catest.TooLong, func(a *secret.Authority) { a.AcceptLongerTTL = new(false) }, false},
		"name":               {ca.Facts{NameMatch: ca.MatchAny}, catest.WrongName, nil, true},
		"name of the domain": {ca.Facts{NameMatch: ca.MatchTrustDomain}, catest.WrongName, nil, false},
		"name, not stated":   {ca.Facts{FixedLifetime: true}, catest.WrongName, nil, false},
		"name, overridden":   {ca.Facts{NameMatch: ca.MatchAny}, catest.WrongName, func(a *secret.Authority) { a.Names = new(pki.ExactNames) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, func(c *secret.Config) {
					own := c.Authorities[0].Client.(*catest.CA)
					own.Next(1, catest.Fault{Break: test.broken})
					if c.Authorities[0].Client = (stated{own, test.facts}); test.change != nil {
						test.change(&c.Authorities[0])
					}
				})
				after(time.Second)
				if item, err := e.Peek(agent, "default"); (err == nil) != test.taken {
					t.Errorf("got %v, %v", item, err)
				}
			})
		})
	}
}

func TestNameChosenByAuthorityIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Names = new(pki.AnyName)
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Break: catest.WrongName})
		})
		if got := e.held("default").Identity.String(); got != "spiffe://wrong-name.test/somebody-else" || e.count(secret.NameDiffers, "") != 1 {
			t.Errorf("got %q, events %v", got, e.events)
		}
	})
}

func TestNameOfAnotherSecretIsAlwaysRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Names = new(pki.AnyName)
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Break: catest.WrongName})
			other := c.Secrets[0]
			other.Name, other.Identity = "other", identity(t, "spiffe://wrong-name.test/somebody-else")
			c.Secrets = slices.Insert(c.Secrets, 0, other)
		})
		e.notReady("default")
		e.held("other")
		if e.count(secret.Failed, "names") != 1 {
			t.Errorf("events %v", e.events)
		}
	})
}
