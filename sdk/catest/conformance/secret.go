package conformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

var secretName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(.*_)?(password|passphrase|secret|token|api_?key|private_?key|secret_?id)$`)
})

func secretsAreMarked(ctx context.Context, s *Session) error {
	return s.eachSetting(ctx, func(name string, property *jsonschema.Schema) error {
		if property.Type == "string" && secretName().MatchString(name) && !property.WriteOnly {
			return fmt.Errorf("%s is not marked", name)
		}
		return nil
	})
}

// canary is the value of a secret setting.
const canary = "canary-that-nobody-prints"

func secretsAreNotQuoted(ctx context.Context, s *Session) error {
	some := false
	err := s.eachSetting(ctx, func(name string, property *jsonschema.Schema) error {
		if !property.WriteOnly {
			return nil
		}
		some = true
		for _, value := range []any{canary, []any{canary}, map[string]any{"of": canary}} {
			settings := s.with(name, value)
			settings[stranger] = true
			if err := s.quotes(ctx, settings); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	if err == nil && !some {
		return NotRun("no setting is secret")
	}
	return err
}

// quotes looks for the canary in all responses to the settings.
func (s *Session) quotes(ctx context.Context, settings map[string]any) error {
	i, err := s.blank()
	if err != nil {
		return err
	}
	found, err := i.Validate(ctx, settings)
	said := fmt.Sprintf("%+v %v %v", found, err, i.Configure(ctx, settings))
	if strings.Contains(said, canary) {
		return errors.New("its value is in a diagnostic or an error")
	}
	return nil
}
