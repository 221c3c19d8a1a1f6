package provider

import (
	"cmp"
	"context"
	"sync"

	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Definition is a provider that can be served as a process ([Definition.Serve]) or
// opened in this one ([Definition.Open]). Make it with [Define]. It is not changed
// once made and is safe for concurrent use.
type Definition struct {
	name, version string
	abilities     []wire.Ability
	schema        func() (string, error)
	check         func(settings map[string]any) []Diagnostic
	ask           func(ctx context.Context, settings map[string]any) ([]Diagnostic, error)
	open          func(ctx context.Context, settings map[string]any) (ca.Client, error)
	protocols     []wire.Protocol
}

// Define describes a provider. S is the struct of its settings: see the package's
// comment for its tags and methods. C is the type whose methods are the provider's
// abilities. An empty version is the main module's, as the go command recorded it: the
// release after `go install`, devel where it recorded none.
//
// open gets checked settings and returns when the client can be used. It is called
// again when the settings change; the earlier client is closed, where it is an
// [io.Closer], after its calls have ended. The context is for opening only.
func Define[S any, C ca.Client](name, version string, open func(ctx context.Context, settings S) (C, error)) *Definition {
	var client C
	return &Definition{
		name: name, version: cmp.Or(version, buildinfo.This().Version), protocols: []wire.Protocol{wire.V1()},
		abilities: abilitiesOf(client),
		// Made when first asked for: reflection costs time that a start has not.
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
			return open(ctx, checked)
		},
	}
}

// read reads settings and has them check themselves. The error is of the reason
// [ca.Invalid], or of the author's own.
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

// WithProtocols returns the same provider serving other versions of the protocol.
func (d *Definition) WithProtocols(protocols ...wire.Protocol) *Definition {
	other := *d
	other.protocols = protocols
	return &other
}

// Open opens the authority in this process: no other is started.
func (d *Definition) Open(ctx context.Context, settings map[string]any) (ca.Client, error) {
	return d.open(ctx, settings)
}

func (d *Definition) metadata() (wire.Metadata, error) {
	schema, err := d.schema()
	if err != nil {
		return wire.Metadata{}, err
	}
	m := wire.Metadata{Name: d.name, Version: d.version, Abilities: d.abilities, SettingsSchema: schema}
	return m, m.Check()
}

func abilitiesOf(client any) []wire.Ability {
	abilities := []wire.Ability{wire.CertificateAuthority}
	if _, ok := client.(ca.RootSource); ok {
		abilities = append(abilities, wire.RootSource)
	}
	if _, ok := client.(ca.RootWatcher); ok {
		abilities = append(abilities, wire.RootWatcher)
	}
	if _, ok := client.(ca.TokenExchanger); ok {
		abilities = append(abilities, wire.TokenExchanger)
	}
	return abilities
}
