package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/schema"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func (e *examination) isPath() bool { return strings.Contains(e.What, "/") }

func (e *examination) start(context.Context) (string, error) {
	if err := e.probe.Launch(); err != nil {
		return "", err
	}
	return fmt.Sprintf("pid %d", e.probe.Status().PID), nil
}

func (e *examination) handshake(ctx context.Context) (string, error) {
	if err := e.probe.Connect(ctx); err != nil {
		return "", err
	}
	_, err := e.probe.Metadata(ctx) // only the first call shows that both ends agree
	s := e.probe.Status()
	if s.Protocol == 0 {
		return "", err
	}
	return fmt.Sprintf("protocol %d, authentication: %s", s.Protocol, s.Authentication), nil
}

func (e *examination) metadata(ctx context.Context) (string, error) {
	m, err := e.probe.Metadata(ctx)
	if err == nil {
		err = e.target.Check(m)
	}
	if err != nil {
		return "", err
	}
	e.described.Metadata = m
	var names []string
	for _, a := range m.Abilities {
		names = append(names, a.String())
	}
	return fmt.Sprintf("%s %s; abilities: %s", m.Name, m.Version, strings.Join(names, ", ")), nil
}

func (e *examination) schema(context.Context) (string, error) {
	settings, err := schema.Parse(e.described.SettingsSchema)
	if err != nil {
		return "", err
	}
	found := fmt.Sprintf("%d settings", len(settings))
	if e.Entry == nil {
		return found + "; not checked, as the configuration has no entry for this provider (--config, --set providers.NAME.settings…)", errDone
	}
	return found, nil
}

func (e *examination) validate(ctx context.Context) (result string, err error) {
	if e.settings, e.secrets, err = e.probe.Resolve(ctx, e.described.SettingsSchema); err != nil {
		return "", err
	}
	found, err := e.probe.Validate(ctx, e.settings)
	if ca.ActionFor(err) == ca.Missing {
		return "the provider does not validate settings", nil
	}
	return e.verdict(found, e.probe.Why(err))
}

// hide removes the secret settings from the provider's output.
func (e *examination) hide(result string, err error) (string, error) {
	return text.WithoutTokens(result, e.secrets...), redact.Error(err, e.secrets...)
}

// hideLog removes from the provider's log what the examination sent: secret settings, and what
// Sign sent.
func (e *examination) hideLog(line string) string {
	if e.Hide != nil {
		line = e.Hide(line)
	}
	return text.WithoutTokens(line, e.secrets...)
}

func (e *examination) ask(ctx context.Context) (string, error) {
	found, err := e.probe.ValidateOnline(ctx, e.settings)
	if ca.ActionFor(err) == ca.Missing {
		return "the provider does not check its CA online", nil
	}
	return e.verdict(found, e.probe.Why(err))
}

func (e *examination) verdict(found []wire.Diagnostic, err error) (string, error) {
	return e.hide(verdict(found, err))
}

// verdict turns faults into an error, one a line, and warnings into text.
func verdict(found []wire.Diagnostic, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var warnings, faults []string
	for _, d := range found {
		said := strings.TrimSuffix(d.Summary+": "+d.Detail, ": ")
		if d.Warning {
			warnings = append(warnings, "warning: "+said)
		} else {
			faults = append(faults, said)
		}
	}
	if len(faults) > 0 {
		return "", ca.Errorf(ca.Invalid, "%s", strings.Join(faults, "\n"))
	}
	if len(warnings) > 0 {
		return strings.Join(warnings, "\n"), nil
	}
	return "valid", nil
}

func (e *examination) configure(ctx context.Context) (string, error) {
	if err := e.probe.Configure(ctx, e.settings); err != nil {
		return e.hide("", e.probe.Why(err))
	}
	return "accepted", nil
}

func (e *examination) ready(ctx context.Context) (string, error) {
	if err := e.probe.Ready(ctx); err != nil {
		return e.hide("", e.probe.Why(err))
	}
	if e.Sign == nil {
		return "nothing was signed; --sign requests a real certificate for a throwaway key", e.doneUnless(e.JWTSVIDs || e.WITSVIDs)
	}
	return "ready", nil
}

func (e *examination) doneUnless(more bool) error {
	if more {
		return nil
	}
	return errDone
}

// keysTimeout is how long a provider may take to send the keys of tokens, which it has at once.
const keysTimeout = 30 * time.Second

// jwtKeys asks for the keys of JWT-SVIDs, as an agent does when it starts. Nothing is signed.
func (e *examination) jwtKeys(ctx context.Context) (string, error) {
	if !e.JWTSVIDs {
		return "", errSkip
	}
	if !slices.Contains(e.described.Abilities, wire.JWTSVID) {
		return "", ca.Errorf(ca.Invalid, "workload_api.jwt_svid names this provider, which lacks the ability %q", wire.JWTSVID)
	}
	return e.keys(ctx, "JWT-SVIDs", e.probe.WatchJWTKeys, jws.ParseKeys, e.WITSVIDs)
}

// witKeys does it for WIT-SVIDs.
func (e *examination) witKeys(ctx context.Context) (string, error) {
	if !e.WITSVIDs {
		return "", errSkip
	}
	if !slices.Contains(e.described.Abilities, wire.WITSVID) {
		return "", ca.Errorf(ca.Invalid, "WIT-SVIDs are to come from this provider, which lacks the ability %q", wire.WITSVID)
	}
	return e.keys(ctx, "WIT-SVIDs", e.probe.WatchWITKeys, jws.ParseWITKeys, false)
}

// keys counts those that a watch begins with. More means that another step follows in any case.
func (e *examination) keys(ctx context.Context, of string, watch func(context.Context, func(jwks []byte) error) error, parse func([]byte) (jws.Keys, error), more bool) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, keysTimeout, ca.Errorf(ca.Deadline, "the provider sent no keys of %s within %s", of, keysTimeout))
	defer cancel()
	var keys jws.Keys
	err := watch(ctx, func(jwks []byte) (err error) {
		if keys, err = parse(jwks); err != nil {
			return err
		}
		return errDone // one set is enough
	})
	if !errors.Is(err, errDone) {
		return e.hide("", e.probe.Why(err))
	}
	return fmt.Sprintf("keys published: %d", len(keys)), e.doneUnless(more || e.Sign != nil)
}

func (e *examination) sign(ctx context.Context) (string, error) {
	found, err := e.Sign(ctx, e.probe)
	if err != nil {
		return e.hide("", e.probe.Why(err))
	}
	return found, nil
}
