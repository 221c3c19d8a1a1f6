package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/schema"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func (w *walk) isPath() bool { return strings.Contains(w.What, "/") }

func (w *walk) start(context.Context) (string, error) {
	if err := w.probe.Launch(); err != nil {
		return "", err
	}
	return fmt.Sprintf("pid %d", w.probe.Status().PID), nil
}

func (w *walk) handshake(ctx context.Context) (string, error) {
	if err := w.probe.Connect(ctx); err != nil {
		return "", err
	}
	_, err := w.probe.Metadata(ctx) // the first call is what shows that both ends know each other
	s := w.probe.Status()
	if s.Protocol == 0 {
		return "", err
	}
	return fmt.Sprintf("protocol %d, authentication: %s", s.Protocol, s.Authentication), nil
}

func (w *walk) metadata(ctx context.Context) (string, error) {
	m, err := w.probe.Metadata(ctx)
	if err == nil {
		err = w.target.Check(m)
	}
	if err != nil {
		return "", err
	}
	w.told.Metadata = m
	var names []string
	for _, a := range m.Abilities {
		names = append(names, a.String())
	}
	return fmt.Sprintf("%s %s, which can %s", m.Name, m.Version, strings.Join(names, ", ")), nil
}

func (w *walk) schema(context.Context) (string, error) {
	settings, err := schema.Parse(w.told.SettingsSchema)
	if err != nil {
		return "", err
	}
	found := fmt.Sprintf("%d settings", len(settings))
	if w.Entry == nil {
		return found + "; no entry of the configuration has this provider, so they were not checked (--config, --set providers.NAME.settings…)", errOver
	}
	return found, nil
}

func (w *walk) validate(ctx context.Context) (string, error) {
	found, err := w.probe.Validate(ctx, w.Entry.Settings)
	if ca.ActionFor(err) == ca.Missing {
		return "it has no check of its own", nil
	}
	return told(found, w.probe.Why(err))
}

func (w *walk) ask(ctx context.Context) (string, error) {
	found, err := w.probe.ValidateOnline(ctx, w.Entry.Settings)
	if ca.ActionFor(err) == ca.Missing {
		return "it has no check that asks its authority", nil
	}
	return told(found, w.probe.Why(err))
}

// told makes an error of faults, and a text of warnings.
func told(found []wire.Diagnostic, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var warnings, faults []string
	for _, d := range found {
		text := strings.TrimSpace(d.Summary + " " + d.Detail)
		if d.Warning {
			warnings = append(warnings, "warning: "+text)
		} else {
			faults = append(faults, text)
		}
	}
	if len(faults) > 0 {
		return "", ca.Errorf(ca.Invalid, "%s", strings.Join(faults, "; "))
	}
	if len(warnings) > 0 {
		return strings.Join(warnings, "; "), nil
	}
	return "good", nil
}

func (w *walk) configure(ctx context.Context) (string, error) {
	if err := w.probe.Configure(ctx, w.Entry.Settings); err != nil {
		return "", w.probe.Why(err)
	}
	return "taken", nil
}

func (w *walk) ready(ctx context.Context) (string, error) {
	if err := w.probe.Ready(ctx); err != nil {
		return "", w.probe.Why(err)
	}
	if w.Sign == nil {
		return "nothing was signed: --sign asks the authority for a real certificate, for a key that is thrown away", errOver
	}
	return "it is", nil
}

func (w *walk) sign(ctx context.Context) (string, error) {
	found, err := w.Sign(ctx, w.probe)
	if err != nil {
		return "", w.probe.Why(err)
	}
	return found, nil
}
