package ra_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func asking(patterns ...string) ra.Rule {
	rule := mesh()
	rule.Names.DNSNames, rule.Names.Requested = []string{"web.example.org"}, patterns
	return rule
}

// The error shows the spelling that would grant the name.
func TestRefusalsNameWildcardsAndUnderscores(t *testing.T) {
	rule := mesh()
	rule.Names.Requested = []string{"*.apps.example.org"}
	inBubble(t, func(c *ra.Config) { c.Policy = policy(t, rule) }, func(h *house) {
		for name, want := range map[string]string{
			"*.apps.example.org":               "'[*]' as the first label",
			"_acme-challenge.apps.example.org": "spell the label out",
			"web.other.example.org":            "the rule allows none like it",
		} {
			req := request()
			req.DNSNames = []string{name}
			if err := h.refused(req, ca.ErrDenied); !errors.Is(err, ra.ErrNames) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", name, err, want)
			}
		}
	})
}

func TestRequestedNamesNeedTheRulesLeave(t *testing.T) {
	long := strings.Repeat("a", 60)
	for name, c := range map[string]struct {
		patterns []string
		asked    []string
		good     bool
	}{
		"none is allowed":                  {nil, []string{"a.shop.apps.example.org"}, false},
		"one that fits":                    {[]string{"*.{namespace}.apps.example.org"}, []string{"a.shop.apps.example.org"}, true},
		"two that fit":                     {[]string{"*.{namespace}.apps.example.org", "shop.example.org"}, []string{"a.shop.apps.example.org", "shop.example.org"}, true},
		"granted anyway":                   {[]string{"web.example.org"}, []string{"web.example.org"}, true},
		"granted, and not to be asked for": {nil, []string{"web.example.org"}, false},
		"one fits, one does not":           {[]string{"*.{namespace}.apps.example.org"}, []string{"a.shop.apps.example.org", "a.bank.apps.example.org"}, false},
		"another namespace's":              {[]string{"*.{namespace}.apps.example.org"}, []string{"a.bank.apps.example.org"}, false},
		"two labels for one":               {[]string{"*.{namespace}.apps.example.org"}, []string{"b.a.shop.apps.example.org"}, false},
		"no label for one":                 {[]string{"*.{namespace}.apps.example.org"}, []string{"shop.apps.example.org"}, false},
		"an empty label":                   {[]string{"*.{namespace}.apps.example.org"}, []string{".shop.apps.example.org"}, false},
		"a wildcard":                       {[]string{"*.{namespace}.apps.example.org"}, []string{"*.shop.apps.example.org"}, false},
		"a wildcard for any label":         {[]string{"[*].{namespace}.apps.example.org"}, []string{"*.shop.apps.example.org"}, true},
		"a label for a wildcard":           {[]string{"[*].{namespace}.apps.example.org"}, []string{"a.shop.apps.example.org"}, false},
		"another namespace's wildcard":     {[]string{"[*].{namespace}.apps.example.org"}, []string{"*.bank.apps.example.org"}, false},
		"the spelling of a wildcard":       {[]string{"[*].{namespace}.apps.example.org"}, []string{"[*].shop.apps.example.org"}, false},
		"a wildcard above":                 {[]string{"[*].{namespace}.apps.example.org"}, []string{"*.apps.example.org"}, false},
		"two wildcards":                    {[]string{"[*].{namespace}.apps.example.org"}, []string{"*.*.apps.example.org"}, false},
		"an underscore that is spelled":    {[]string{"_acme-challenge.{namespace}.apps.example.org"}, []string{"_acme-challenge.shop.apps.example.org"}, true},
		"an underscore for any label":      {[]string{"*.{namespace}.apps.example.org"}, []string{"_acme-challenge.shop.apps.example.org"}, false},
		"upper case":                       {[]string{"*.{namespace}.apps.example.org"}, []string{"A.shop.apps.example.org"}, false},
		"another script":                   {[]string{"*.{namespace}.apps.example.org"}, []string{"xn--80ak6aa92e.shop.apps.example.org"}, false},
		"a dot at its end":                 {[]string{"*.{namespace}.apps.example.org"}, []string{"a.shop.apps.example.org."}, false},
		"a space":                          {[]string{"*.{namespace}.apps.example.org"}, []string{"a .shop.apps.example.org"}, false},
		"the template itself":              {[]string{"*.{namespace}.apps.example.org"}, []string{"*.{namespace}.apps.example.org"}, false},
		"an attribute that is not there":   {[]string{"*.{user}.apps.example.org"}, []string{"a..apps.example.org"}, false},
		"too long a name":                  {[]string{"*." + strings.Repeat(long+".", 3) + long + ".example.org"}, []string{"a." + strings.Repeat(long+".", 3) + long + ".example.org"}, false},
		"too many":                         {[]string{"*.{namespace}.apps.example.org"}, slices.Repeat([]string{"a.shop.apps.example.org"}, 33), false},
		"nothing":                          {[]string{"*.{namespace}.apps.example.org"}, []string{""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(conf *ra.Config) { conf.Policy = policy(t, asking(c.patterns...)) }, func(h *house) {
				req := request()
				req.DNSNames = c.asked
				if !c.good {
					if err := h.refused(req, ca.ErrDenied); !ra.Refused(err) || !errors.Is(err, ra.ErrNames) {
						t.Errorf("%v is not about the names", err)
					}
					if len(h.ca.Requests()) > 0 {
						t.Error("the authority was asked")
					}
					return
				}
				want := slices.Concat([]string{"web.example.org"}, c.asked)
				slices.Sort(want)
				want = slices.Compact(want)
				got := slices.Clone(h.must(req).Identity.DNSNames)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("issued to %q, want %q", got, want)
				}
			})
		})
	}
}

func TestWhoAsksForNoNameGetsNoneOfThem(t *testing.T) {
	inBubble(t, func(conf *ra.Config) { conf.Policy = policy(t, asking("*.{namespace}.apps.example.org")) }, func(h *house) {
		if got := h.must(request()).Identity.DNSNames; !slices.Equal(got, []string{"web.example.org"}) {
			t.Errorf("issued to %q", got)
		}
	})
}

func TestPatternsOfRequestedNamesThatAreRefused(t *testing.T) {
	for _, pattern := range []string{"*", "*.org", "a.*.example.org", "a*.example.org", "**.example.org", "*.{nobody}.example.org", "*.example.{namespace}", "*..example.org", "*.Example.org",
		"[*]", "[*].org", "a.[*].example.org", "a[*].example.org", "[*].*.example.org", "*.[*].example.org", "_.example.org", "__a.example.org", "a_b.example.org"} {
		if _, err := ra.NewPolicy("home", []ra.Rule{asking(pattern)}); err == nil {
			t.Errorf("%q is accepted", pattern)
		}
	}
}

// A name that is no longer allowed is not issued to who waits.
func TestRequestedNameThatThePolicyLosesIsNotIssued(t *testing.T) {
	inBubble(t, func(conf *ra.Config) {
		conf.Policy = policy(t, asking("*.{namespace}.apps.example.org"))
		conf.Authorities[0].Limits = ra.Limits{Rate: 1. / 60, Burst: 1}
	}, func(h *house) {
		h.must(request())
		second := make(chan error, 1)
		go func() {
			req := request()
			req.CSR, req.DNSNames = empty(1), []string{"a.shop.apps.example.org"}
			_, err := h.issue(req)
			second <- err
		}()
		synctest.Wait()
		if err := h.SetPolicy(policy(t, asking())); err != nil {
			t.Fatal(err)
		}
		if err := <-second; !errors.Is(err, ca.ErrAborted) {
			t.Errorf("got %v", err)
		}
	})
}
