package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

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
	check         func(settings map[string]any) error
	open          func(ctx context.Context, settings map[string]any) (ca.Client, error)
	protocols     []wire.Protocol
}

// Define describes a provider. S is the struct of its settings, read as JSON with
// unknown keys refused; where it has a method Validate() error, that is asked, too.
// C is the type whose methods are the provider's abilities.
//
// open gets checked settings and returns when the client can be used. It is called
// again when the settings change; the earlier client is closed, where it is an
// [io.Closer], after its calls have ended. The context is for opening only.
func Define[S any, C ca.Client](name, version string, open func(ctx context.Context, settings S) (C, error)) *Definition {
	var client C
	return &Definition{
		name: name, version: version, protocols: []wire.Protocol{wire.V1()},
		abilities: abilitiesOf(client),
		// Made when first asked for: reflection costs time that a start has not.
		schema: sync.OnceValues(schemaOf[S]),
		check: func(settings map[string]any) error {
			_, err := decode[S](settings)
			return err
		},
		open: func(ctx context.Context, settings map[string]any) (ca.Client, error) {
			checked, err := decode[S](settings)
			if err != nil {
				return nil, err
			}
			return open(ctx, checked)
		},
	}
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

func schemaOf[S any]() (string, error) {
	schema, err := jsonschema.For[S](nil)
	if err != nil {
		return "", fmt.Errorf("make the schema of the settings %s: %w", reflect.TypeFor[S](), err)
	}
	text, err := json.Marshal(schema)
	return string(text), err
}
