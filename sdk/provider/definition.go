package provider

import (
	"cmp"
	"context"
	"reflect"
	"sync"

	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Definition is a provider that can be served as a process ([Definition.Serve]) or opened in
// this one ([Definition.Open]). [Define] makes one. It is immutable and safe for concurrent
// use.
type Definition struct {
	name, version string
	abilities     []wire.Ability
	facts         ca.Facts
	schema        func() (string, error)
	check         func(settings map[string]any) []Diagnostic
	ask           func(ctx context.Context, settings map[string]any) ([]Diagnostic, error)
	open          func(ctx context.Context, settings map[string]any) (ca.Client, error)
	protocols     []wire.Protocol
}

// Define describes a provider. name is that of countersign-provider-NAME, 1 to 63 of a-z, 0-9
// and -. version is up to its author; if empty, it is that of the main module as the go command
// recorded it: the release after `go install`, else devel. S is the struct of the settings: the
// package comment has its tags and methods. The methods of C are the provider's abilities; a C that
// is an interface must not hide any. What is wrong with the name, the version or a tag, such as a
// default of another type, is an error of [Definition.Open] and [Definition.Serve].
//
// open gets checked settings and returns a client that is ready for use. Its context is for
// opening only. When settings change, open is called again, and the earlier client is closed
// after its calls have ended if it is an [io.Closer].
func Define[S any, C ca.Client](name, version string, open func(ctx context.Context, settings S) (C, error)) *Definition {
	abilities := abilitiesOf(reflect.TypeFor[C]())
	return &Definition{
		name: name, version: cmp.Or(version, buildinfo.This().Version), protocols: []wire.Protocol{wire.V1()},
		abilities: abilities,
		// On first use: reflection takes time, and starts should be fast.
		schema: sync.OnceValues(schemaOf[S]),
		check: func(settings map[string]any) []Diagnostic {
			_, found, _ := read[S](settings)
			return found
		},
		ask: func(ctx context.Context, settings map[string]any) ([]Diagnostic, error) {
			checked, found, _ := read[S](settings)
			if wire.HasErrors(found) {
				return found, nil
			}
			more, err := online(ctx, &checked)
			return append(found, more...), err
		},
		open: func(ctx context.Context, settings map[string]any) (ca.Client, error) {
			checked, _, err := read[S](settings)
			if err != nil {
				return nil, err
			}
			client, err := open(ctx, checked)
			if err != nil {
				return nil, err
			}
			return opened(client, abilities)
		},
	}
}

// read decodes settings and validates them. The error has the reason [ca.Invalid], or the one
// that Validate gave it.
func read[S any](settings map[string]any) (out S, found []Diagnostic, err error) {
	out, found = decode[S](settings)
	if len(found) > 0 {
		return out, found, asError(found)
	}
	found, err = offline(&out) // the pointer has the methods of the value, too
	if err != nil {
		return out, found, asInvalid(err, found)
	}
	return out, found, nil
}

// WithFacts returns the same provider with what its author knows about the CA:
//
//	provider.Define("acme", "1.0.0", Open).WithFacts(provider.Facts{FixedLifetime: true}).Serve()
//
// Facts hold for all settings; they become the defaults of the host, and its operator may
// override them.
func (d *Definition) WithFacts(facts ca.Facts) *Definition {
	other := *d
	other.facts = facts
	return &other
}

// WithProtocols returns the same provider with other versions of the protocol.
func (d *Definition) WithProtocols(protocols ...wire.Protocol) *Definition {
	other := *d
	other.protocols = protocols
	return &other
}

// Open opens the authority in this process and starts no other. The caller closes the client
// if it is an [io.Closer].
func (d *Definition) Open(ctx context.Context, settings map[string]any) (ca.Client, error) {
	if _, err := d.metadata(); err != nil {
		return nil, err
	}
	return d.open(ctx, settings)
}

func (d *Definition) metadata() (wire.Metadata, error) {
	schema, err := d.schema()
	if err != nil {
		return wire.Metadata{}, err
	}
	m := wire.Metadata{Name: d.name, Version: d.version, Abilities: d.abilities, SettingsSchema: schema, Facts: d.facts}
	return m, m.Check()
}
