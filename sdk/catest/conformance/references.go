package conformance

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Resolve puts the values of secrets in the place of the references to them in the kit's settings,
// as a host does: {file: PATH}, {env: NAME} or {command: [PROGRAM, ARG…]}. Which settings are
// secret is in the provider's schema; if there is none to read, the checks say so. [Run] and
// [RunSubject] call it.
func (s *Session) Resolve(ctx context.Context) error {
	if len(s.Kit.Settings)+len(s.Kit.WrongSettings) == 0 {
		return nil
	}
	i, err := s.blank()
	if err != nil {
		return nil //nolint:nilerr // the first check reports it
	}
	m, err := s.metadata(ctx, i)
	paths, malformed := reference.SecretPaths(m.SettingsSchema)
	if err != nil || malformed != nil {
		return nil //nolint:nilerr // as above
	}
	return errors.Join(s.resolve(ctx, "the kit's ", &s.Kit.Settings, paths), s.resolve(ctx, "the kit's wrong_", &s.Kit.WrongSettings, paths))
}

// resolve reads what some settings refer to. Its errors are prefixed with called.
func (s *Session) resolve(ctx context.Context, called string, settings *map[string]any, paths reference.Paths) error {
	if len(*settings) == 0 {
		return nil // which may mean that the kit lacks them
	}
	opts := reference.Options{LookupEnv: os.LookupEnv, CommandEnv: command.MinimalEnv(os.LookupEnv), Dir: s.Kit.Dir}
	told, err := reference.NewResolver(opts, *settings).Resolve(ctx, paths)
	if wrong, ok := errors.AsType[*ca.Error](err); ok {
		return errors.New(called + wrong.Message) // its reason is for hosts
	}
	*settings, s.secrets = told.Settings, append(s.secrets, told.Secrets...)
	return err
}

// tokens returns what no output may have: the tokens that the session may send, and the secrets
// among its settings.
func (s *Session) tokens() []ca.Token {
	sent := slices.Clip(s.secrets)
	for _, token := range []ca.Token{s.Kit.Token, s.Kit.RefusedToken, s.Kit.Exchange.SubjectToken, s.Kit.RefusedSubjectToken} {
		if token != "" {
			sent = append(sent, token)
		}
	}
	return sent
}
