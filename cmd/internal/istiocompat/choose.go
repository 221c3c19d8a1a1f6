package istiocompat

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const (
	usualRule     = "CA_PROVIDER, CA_ADDR and providers are unset: istiod at its usual address"
	discoveryRule = "CA_PROVIDER, CA_ADDR and providers are unset: istiod at PROXY_CONFIG's discoveryAddress"
)

// IsUsual reports whether a rule is that of the choice that is made when no CA is configured.
func IsUsual(rule string) bool { return rule == usualRule || rule == discoveryRule }

const (
	citadel = "citadel" // istiod's CA
	file    = "file"    // a CA in a folder
	google  = "google"
	acme    = "acme"
	aws     = "aws" // AWS Private CA
)

// aliases are Istio's names of providers, in lower case.
var aliases = map[string]string{"googleca": google, "googlecas": google}

// providerCalled returns the provider that a name means, in any case.
func providerCalled(name string) string {
	name = strings.ToLower(name)
	return cmp.Or(aliases[name], name)
}

// chooser chooses by CA_PROVIDER and CA_ADDR among the given providers.
type chooser struct {
	name, address string        // the variables
	discovery     func() string // istiod's address if no other is set; "" is unknown
	given         Given
}

// choose returns the choice and its settings. The choice is empty if several providers are
// configured and none is named.
func (c chooser) choose() (Choice, []Assignment, error) {
	switch {
	case c.name != "":
		return c.byName()
	case c.address != "":
		return c.byAddress()
	case len(c.given.Providers) == 0:
		usual := Choice{citadel, citadel, usualRule}
		at := usual.discovery(c.discovery())
		if len(at) > 0 {
			usual.Rule = discoveryRule
		}
		return usual, append(usual.entry(""), at...), nil
	}
	return c.given.Chosen, nil, nil
}

func (c chooser) byName() (Choice, []Assignment, error) {
	provider := providerCalled(c.name)
	if !wire.ValidName(provider) {
		return Choice{}, nil, fmt.Errorf("CA_PROVIDER is %.256q: must be an installed provider, such as Citadel or File; \"countersign provider list\" shows them", c.name)
	}
	choice, configured := c.entryOf(strings.ToLower(c.name), provider)
	choice.Rule = fmt.Sprintf("CA_PROVIDER is %q", c.name)
	address, err := parseAddress(c.address).of(choice.Provider, strings.ToLower(c.name))
	switch {
	case c.address == "" && !configured && provider == google:
		err = fmt.Errorf("CA_PROVIDER is %q: set CA_ADDR, too: %s", c.name, googleForms)
	case err != nil:
		err = fmt.Errorf("CA_ADDR is %.256q and CA_PROVIDER is %q: %w, or unset one of them", text.WithoutPassword(c.address), c.name, err)
	}
	found := append(choice.entry("CA_PROVIDER"), choice.at(address)...)
	if c.address == "" && !configured && choice.Provider == citadel {
		found = append(found, choice.discovery(c.discovery())...)
	}
	return choice, found, err
}

func (c chooser) byAddress() (Choice, []Assignment, error) {
	a := parseAddress(c.address)
	if a.isURL() {
		return Choice{}, nil, fmt.Errorf("CA_ADDR is %.256q: a URL does not say which provider to use: write PROVIDER://ADDRESS, as in %.256s, or set CA_PROVIDER, too; \"countersign provider list\" shows the installed providers",
			text.WithoutPassword(c.address), c.example(a))
	}
	provider, rule := a.chooses()
	choice, _ := c.entryOf(provider, provider)
	choice.Rule = "CA_ADDR " + rule
	address, err := a.of(choice.Provider, a.scheme)
	if err != nil {
		err = fmt.Errorf("CA_ADDR is %.256q: %w", text.WithoutPassword(c.address), err)
	}
	return choice, append(choice.entry("CA_ADDR"), choice.at(address)...), err
}

// example returns a URL as an address of the provider that is configured, else of one that has
// such an address.
func (c chooser) example(a address) string {
	provider := "vault"
	if len(c.given.Providers) > 0 {
		provider = c.given.Providers[0].Provider
	}
	return provider + "://" + a.withoutScheme()
}

// entryOf returns the given entry of that name, else the one that runs the provider, else a
// new one.
func (c chooser) entryOf(name, provider string) (choice Choice, configured bool) {
	for _, fits := range []func(pluginhost.Entry) bool{
		func(e pluginhost.Entry) bool { return e.Name == name },
		func(e pluginhost.Entry) bool { return e.Provider == provider },
	} {
		if i := slices.IndexFunc(c.given.Providers, fits); i >= 0 {
			entry := c.given.Providers[i]
			return Choice{Entry: entry.Name, Provider: entry.Provider}, true
		}
	}
	return Choice{Entry: provider, Provider: provider}, false
}

// entry makes the choice an entry, and the default.
func (c Choice) entry(variable string) []Assignment {
	return []Assignment{{c.path("name"), c.Entry, variable}, {"default_provider", c.Entry, variable}}
}

// discovery makes istiod's address, if it is known, that of its CA.
func (c Choice) discovery(address string) []Assignment {
	if address == "" {
		return nil
	}
	return []Assignment{{c.path("address"), address, fieldPath(discoveryField)}}
}

// at makes the address that of the entry, from CA_ADDR.
func (c Choice) at(address string) []Assignment {
	if address == "" {
		return nil
	}
	found := []Assignment{{c.path("address"), address, "CA_ADDR"}}
	if c.Provider == google {
		found = append(found, c.setting("protocol", protocolOf(address), "CA_ADDR"))
	}
	return found
}
