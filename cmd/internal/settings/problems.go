// Package settings is what the configuration files of countersign-ra and countersign-discovery
// have in common: sections, checks and how a file is read. A program's package config embeds
// the sections in its own struct, decodes the file, calls the checks with a [Problems], and
// returns [Problems.Err].
package settings

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Problems collects all errors, so that one run reports them all.
type Problems struct{ errs []error }

// Say adds an error: a setting, its value, and what is allowed.
func (p *Problems) Say(setting string, value any, allowed string) {
	shown := fmt.Sprintf("%q", wire.CleanText(fmt.Sprint(value), ""))
	if fmt.Sprint(value) == "" || fmt.Sprint(value) == "[]" {
		shown = "not set"
	}
	p.Add(fmt.Errorf("%s is %s: %s", wire.CleanText(setting, ""), shown, allowed))
}

// Add adds an error that names its setting.
func (p *Problems) Add(err error) { p.errs = append(p.errs, err) }

// Err returns all errors, joined; nil if there are none.
func (p *Problems) Err() error { return errors.Join(p.errs...) }

// HostPort checks an address to listen on; empty is valid.
func (p *Problems) HostPort(setting, address string) {
	if address == "" {
		return
	}
	_, port, err := net.SplitHostPort(address)
	if _, wrong := net.LookupPort("tcp", port); err != nil || wrong != nil || port == "" {
		p.Say(setting, address, "write host:port, such as :15012 or 127.0.0.1:15012")
	}
}

// OneOf checks a setting that takes one of a few words.
func (p *Problems) OneOf(setting, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		p.Say(setting, value, strings.Join(allowed[:len(allowed)-1], ", ")+" or "+allowed[len(allowed)-1]+" is allowed")
	}
}

// KeyType checks the type of a key; empty is the default. This build may lack a known one.
func (p *Problems) KeyType(setting, value string) {
	_, err := pki.ParseKeyType(value)
	if err == nil {
		return
	}
	known := make([]string, len(pki.KeyTypes))
	for i, one := range pki.KeyTypes {
		known[i] = string(one)
	}
	if slices.Contains(known, value) {
		p.Add(fmt.Errorf("%s: %w", setting, err))
		return
	}
	p.OneOf(setting, value, known...)
}
