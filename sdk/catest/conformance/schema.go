package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/countersign-dev/countersign/internal/host/address"
)

// schemaOf returns the provider's schema, parsed and resolved.
func (s *Session) schemaOf(ctx context.Context) (*jsonschema.Schema, *jsonschema.Resolved, error) {
	m, err := described(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if m.SettingsSchema == "" {
		return nil, nil, NotRun("the provider has no schema: it takes no settings")
	}
	schema := &jsonschema.Schema{}
	if err := json.Unmarshal([]byte(m.SettingsSchema), schema); err != nil {
		return nil, nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	resolved, err := schema.Resolve(nil)
	return schema, resolved, err
}

func schemaResolves(ctx context.Context, s *Session) error {
	_, _, err := s.schemaOf(ctx)
	if _, none := errors.AsType[notRunError](err); none {
		return nil
	}
	return err
}

func schemaIsStrict(ctx context.Context, s *Session) error {
	schema, resolved, err := s.schemaOf(ctx)
	if err != nil {
		return err
	}
	if schema.Type != "object" {
		return fmt.Errorf("its type is %q", schema.Type)
	}
	with := map[string]any{}
	maps.Copy(with, s.Kit.Settings)
	with[stranger] = true
	if plain, err := plainJSON(with); err != nil || resolved.Validate(plain) == nil {
		return errors.Join(err, fmt.Errorf("the schema lets %q pass; additionalProperties: false refuses it", stranger))
	}
	return nil
}

// eachSetting visits the schema's properties in order.
func (s *Session) eachSetting(ctx context.Context, look func(name string, property *jsonschema.Schema) error) error {
	schema, _, err := s.schemaOf(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if err := look(name, schema.Properties[name]); err != nil {
			return err
		}
	}
	return nil
}

func settingsAreDescribed(ctx context.Context, s *Session) error {
	return s.eachSetting(ctx, func(name string, property *jsonschema.Schema) error {
		if strings.TrimSpace(property.Description) == "" && property.Ref == "" {
			return fmt.Errorf("%s has no description", name)
		}
		return nil
	})
}

func defaultsFit(ctx context.Context, s *Session) error {
	return s.eachSetting(ctx, func(name string, property *jsonschema.Schema) error {
		if property.Default == nil || property.Ref != "" {
			return nil
		}
		var value any
		resolved, err := property.CloneSchemas().Resolve(nil)
		if err == nil {
			err = errors.Join(json.Unmarshal(property.Default, &value), resolved.Validate(value))
		}
		if err != nil {
			return fmt.Errorf("the default of %s, %s: %w", name, property.Default, err)
		}
		return nil
	})
}

func addressIsMarked(ctx context.Context, s *Session) error {
	m, err := described(ctx, s)
	if err != nil || m.SettingsSchema == "" {
		return err
	}
	if err := address.Check(m.SettingsSchema); err != nil {
		return err
	}
	marked, err := address.Of(m.SettingsSchema)
	for _, one := range marked {
		written, _ := s.Kit.Settings[one.Name].(string)
		if written == "" || one.Form == address.Path { // a relative path is a setting, too
			continue
		}
		if _, value, wrong := (address.Settings{one}).Choose(written); wrong != nil || value != written {
			err = errors.Join(err, fmt.Errorf("invalid address in the kit: %s lacks the form %q of its schema", one.Name, one.Form))
		}
	}
	return err
}

func settingsFit(ctx context.Context, s *Session) error {
	_, resolved, err := s.schemaOf(ctx)
	if err != nil {
		return err
	}
	plain, err := plainJSON(s.Kit.Settings)
	return errors.Join(err, resolved.Validate(plain))
}

// plainJSON returns a copy that contains only JSON types.
func plainJSON(settings map[string]any) (map[string]any, error) {
	plain := map[string]any{}
	if settings == nil {
		return plain, nil
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	return plain, json.Unmarshal(text, &plain)
}
