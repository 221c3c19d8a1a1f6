package pluginhost_test

import (
	"context"
	"strings"
	"testing"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
)

type addressedSettings struct {
	Server string `json:"server" address:"url"`
	Role   string `json:"role,omitempty"`
}

// The address of an entry replaces the setting that the provider's schema marks. A wrong one is an
// error, and reaches no provider.
func TestEntrysAddressReachesTheMarkedSetting(t *testing.T) {
	opened, states := make(chan addressedSettings, 100), make(chan pluginhost.Status, 100)
	define := provider.Define("addressed", "1", func(_ context.Context, s addressedSettings) (*catest.CA, error) {
		opened <- s
		return catest.NewCA(catest.Options{}), nil
	})
	opts := pluginhost.Options{OnState: func(s pluginhost.Status) { states <- s }}
	entry := pluginhost.Entry{Name: "addressed", Address: "ca.example:8443", Settings: map[string]any{"server": "https://old", "role": "web"}}
	p, err := pluginhost.InProcess(t.Context(), opts, entry, define.Provider)
	must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	if got, want := next(t, opened, "settings"), (addressedSettings{"https://ca.example:8443", "web"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	sign(t, p)

	wrong := pluginhost.Entry{Name: "addressed", Address: "?"}
	q, err := pluginhost.InProcess(t.Context(), opts, wrong, define.Provider)
	if err == nil {
		t.Cleanup(func() { _ = q.Close() })
	}
	for err == nil {
		if s := next(t, states, "the wrong address"); s.LastError != "" {
			if want := "address: write a URL, or HOST[:PORT][/PATH] for https, for the setting server"; !strings.Contains(s.LastError, want) {
				t.Errorf("got %q, want %q", s.LastError, want)
			}
			break
		}
	}
	if err != nil && !strings.Contains(err.Error(), "address: write a URL") {
		t.Error(err)
	}
	select {
	case s := <-opened:
		t.Errorf("it was opened with %+v", s)
	default:
	}
}
