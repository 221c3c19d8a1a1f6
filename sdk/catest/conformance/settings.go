package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// stranger is a setting that no provider defines.
const stranger = "no_provider_has_this_setting"

func settingsChecks() []Check {
	schema := []string{"META-01", "SET-01"}
	return []Check{
		{"SET-01", Settings, "The schema of the settings is empty or a JSON Schema (draft 2020-12).", "Editors, `inspect` and `docs` read it.", []string{"META-01"}, schemaResolves},
		{"SET-02", Settings, "The schema describes an object without additional properties.", "Editors then flag a mistyped setting.", schema, schemaIsStrict},
		{"SET-03", Settings, "The schema has a description for each setting.", "It is the documentation that an operator has at hand.", schema, settingsAreDescribed},
		{"SET-04", Settings, "Each default in the schema is valid for its setting.", "An operator must be able to write down the documented default.", schema, defaultsFit},
		{"SET-05", Settings, "The kit's settings match the schema.", "Otherwise the schema rejects what the provider accepts.", schema, settingsFit},
		{"SET-06", Settings, "It accepts valid settings and becomes ready.", "Everything else depends on it.", nil, goodSettings},
		{"SET-07", Settings, "A check of valid settings reports no error.", "An error there prevents the start.", []string{"SET-06"}, goodSettingsCheck},
		{"SET-08", Settings, "A check reports an unknown setting by name.", "If a mistyped setting is ignored, its default applies unnoticed.", nil, unknownIsFound},
		{"SET-09", Settings, "It rejects settings with an unknown name as invalid.", "What a check rejects must not be accepted.", nil, unknownIsRefused},
		{"SET-10", Settings, "It reports a missing required setting.", "By the schema it is required.", schema, requiredIsFound},
		{"SET-11", Settings, "It reports a setting whose type differs from the schema's.", "A misread value is worse than an error.", schema, wrongTypeIsFound},
		{"SET-12", Settings, "It reports a value outside the schema's enum.", "By the schema there are no other values.", schema, outsideEnumIsFound},
		{"SET-13", Settings, "A check reports what is wrong with the kit's wrong settings.", "What can be known before the start must be reported before the start.", nil, wrongIsFound},
		{"SET-14", Settings, "It rejects the kit's wrong settings as invalid.", "A provider that starts with them fails later, without an explanation.", nil, wrongIsRefused},
		{"SET-15", Settings, "A check does not apply the settings.", "Operators check settings next to a working provider.", []string{"PROTO-02"}, checkTakesNothing},
		{"SET-16", Settings, "After it rejects settings, the earlier ones stay in effect.", "A mistake must not break what works.", []string{"SET-06", "SET-09"}, earlierStand},
		{"SET-17", Settings, "It accepts the same settings again.", "The host sends them again whenever it is unsure.", []string{"SET-06"}, sameAgain},
		{"SET-18", Settings, "A diagnostic has a summary of one line, and its pointer is empty or a JSON Pointer.", "It is shown next to the setting.", []string{"SET-08"}, diagnosticsAreWellFormed},
		{"SET-19", Settings, "A setting named password, secret, token or key is marked writeOnly.", "Only marked settings are hidden in output.", schema, secretsAreMarked},
		{"SET-20", Settings, "No error quotes a secret setting.", "Errors are logged.", schema, secretsAreNotQuoted},
		{"SET-21", Settings, "An online check of valid settings reports no error, or does not exist.", "`doctor` shows its result to operators.", []string{"SET-07"}, onlineCheck},
		{"SET-22", Settings, "A setting that the schema marks as the CA's address is a string with a known form, which the kit's value has.", "An operator selects the provider by `NAME://ADDRESS`.", schema, addressIsMarked},
	}
}

func goodSettings(_ context.Context, s *Session) error {
	_, err := s.readied()
	if errors.Is(err, ca.ErrInvalid) && len(s.Kit.Settings) == 0 {
		return fmt.Errorf("%w; the kit has no settings: give valid ones with --kit or --settings", err)
	}
	return err
}

// faultsOf validates settings with an instance that has none.
func (s *Session) faultsOf(ctx context.Context, settings map[string]any) ([]wire.Diagnostic, error) {
	i, err := s.blank()
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	return i.Validate(ctx, settings)
}

func goodSettingsCheck(ctx context.Context, s *Session) error {
	found, err := s.faultsOf(ctx, s.Kit.Settings)
	if err == nil && wire.HasErrors(found) {
		return fmt.Errorf("it finds %s", summaries(found))
	}
	return err
}

func summaries(found []wire.Diagnostic) string {
	texts := make([]string, len(found))
	for i, d := range found {
		texts[i] = d.Summary
	}
	return fmt.Sprintf("%q", texts)
}

// with returns the kit's settings plus one.
func (s *Session) with(name string, value any) map[string]any {
	settings := maps.Clone(s.Kit.Settings)
	if settings == nil {
		settings = map[string]any{}
	}
	settings[name] = value
	return settings
}

// mustFind validates settings that must have a fault.
func (s *Session) mustFind(ctx context.Context, what string, settings map[string]any) ([]wire.Diagnostic, error) {
	found, err := s.faultsOf(ctx, settings)
	if err == nil && !wire.HasErrors(found) {
		return nil, fmt.Errorf("%s: nothing is found", what)
	}
	return found, err
}

func unknownIsFound(ctx context.Context, s *Session) error {
	found, err := s.mustFind(ctx, "a setting "+stranger, s.with(stranger, true))
	if err == nil && !strings.Contains(summaries(found), stranger) {
		return fmt.Errorf("it finds %s, and does not name %s", summaries(found), stranger)
	}
	return err
}

// mustRefuse sends settings that must be rejected.
func (s *Session) mustRefuse(ctx context.Context, settings map[string]any) error {
	i, err := s.blank()
	if err != nil {
		return err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	if err := i.Configure(ctx, settings); !errors.Is(err, ca.ErrInvalid) {
		return fmt.Errorf("it answers %w", orNone(err))
	}
	return nil
}

func unknownIsRefused(ctx context.Context, s *Session) error {
	return s.mustRefuse(ctx, s.with(stranger, true))
}

func requiredIsFound(ctx context.Context, s *Session) error {
	schema, _, err := s.schemaOf(ctx)
	if err != nil {
		return err
	}
	if len(schema.Required) == 0 {
		return NotRun("no setting is required")
	}
	for _, name := range schema.Required {
		settings := maps.Clone(s.Kit.Settings)
		delete(settings, name)
		if _, err := s.mustFind(ctx, "without "+name, settings); err != nil {
			return err
		}
	}
	return nil
}

// another returns a value of a type the property does not allow.
func another(property *jsonschema.Schema) any {
	types := append([]string{property.Type}, property.Types...)
	switch {
	case len(types) == 1 && types[0] == "" || property.Ref != "":
		return nil // anything goes, or another check covers it
	case !slices.Contains(types, "object"):
		return map[string]any{"of": "another type"}
	case !slices.Contains(types, "boolean"):
		return true
	}
	return nil
}

func wrongTypeIsFound(ctx context.Context, s *Session) error {
	return s.eachSetting(ctx, func(name string, property *jsonschema.Schema) error {
		value := another(property)
		if value == nil {
			return nil
		}
		_, err := s.mustFind(ctx, fmt.Sprintf("%s is %v", name, value), s.with(name, value))
		return err
	})
}

func outsideEnumIsFound(ctx context.Context, s *Session) error {
	some := false
	err := s.eachSetting(ctx, func(name string, property *jsonschema.Schema) error {
		if property.Enum == nil {
			return nil
		}
		some = true
		_, err := s.mustFind(ctx, name+" is "+stranger, s.with(name, stranger))
		return err
	})
	if err == nil && !some {
		return NotRun("no setting has an enum")
	}
	return err
}

var errNoWrongSettings = needs("wrong_settings", "")

func wrongIsFound(ctx context.Context, s *Session) error {
	if s.Kit.WrongSettings == nil {
		return errNoWrongSettings
	}
	_, err := s.mustFind(ctx, "the kit's wrong settings", s.Kit.WrongSettings)
	return err
}

func wrongIsRefused(ctx context.Context, s *Session) error {
	if s.Kit.WrongSettings == nil {
		return errNoWrongSettings
	}
	return s.mustRefuse(ctx, s.Kit.WrongSettings)
}

func checkTakesNothing(ctx context.Context, s *Session) error {
	i, err := s.Fresh(ctx)
	if err != nil {
		return err
	}
	if _, err := i.Validate(ctx, s.Kit.Settings); err != nil {
		return err
	}
	if err := i.Ready(ctx); err == nil {
		return errors.New("after a check it is ready, with no settings sent")
	}
	return nil
}

func earlierStand(ctx context.Context, s *Session) error {
	i, err := s.FreshReady(ctx)
	if err != nil {
		return err
	}
	if err := i.Configure(ctx, s.with(stranger, true)); err == nil {
		return errors.New("an unknown setting was taken")
	}
	return worksOn(ctx, i)
}

func sameAgain(ctx context.Context, s *Session) error {
	i, err := s.FreshReady(ctx)
	if err != nil {
		return err
	}
	if err := i.Configure(ctx, s.Kit.Settings); err != nil {
		return err
	}
	return Configure(ctx, i, s.Kit.Settings)
}

func diagnosticsAreWellFormed(ctx context.Context, s *Session) error {
	found, err := s.faultsOf(ctx, s.with(stranger, true))
	for _, d := range found {
		switch {
		case strings.TrimSpace(d.Summary) == "":
			return errors.New("a diagnostic has no summary")
		case strings.ContainsFunc(d.Summary, unicode.IsControl):
			return fmt.Errorf("the summary %q has more than one line", d.Summary)
		case d.Pointer != "" && d.Pointer[0] != '/':
			return fmt.Errorf("the pointer is %q; one begins with /", d.Pointer)
		}
	}
	return err
}

func onlineCheck(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	found, err := i.ValidateOnline(ctx, s.Kit.Settings)
	if errors.Is(err, ca.ErrUnimplemented) {
		return NotRun("the provider has no online check")
	}
	if err == nil && wire.HasErrors(found) {
		return fmt.Errorf("it finds %s", summaries(found))
	}
	return err
}
