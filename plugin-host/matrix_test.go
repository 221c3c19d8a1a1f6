package pluginhost_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// The matrix of docs/versioning.md, with real processes: the highest version that both
// speak is used, and where there is none the error names what each of them speaks.
func TestHighestCommonProtocolIsNegotiated(t *testing.T) {
	t.Parallel()
	hosts := map[string][]wire.Protocol{"1": {wire.V1()}, "2": {conformance.V2()}, "1 and 2": {wire.V1(), conformance.V2()}}
	for provider, want := range map[string]map[string]int{
		"good":   {"1": 1, "2": 0, "1 and 2": 1}, // speaks version 1
		"two":    {"1": 0, "2": 2, "1 and 2": 2},
		"both":   {"1": 1, "2": 2, "1 and 2": 2},
		"stock":  {"1": 1, "1 and 2": 1}, // of stock plugin.Serve
		"pinned": {"1": 1, "1 and 2": 1}, // of another language
	} {
		for speaks, version := range want {
			t.Run(provider+" under a host of "+speaks, func(t *testing.T) {
				h := newHost(t, provider)
				h.opts.Protocols = hosts[speaks]
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				p, err := pluginhost.Open(ctx, h.opts, pluginhost.Entry{Name: provider})
				if version == 0 {
					if err == nil || !strings.Contains(h.rec.log(), "no common protocol version") {
						t.Errorf("%v; log:\n%s", err, h.rec.log())
					}
					return
				}
				must(t, err)
				defer p.Close()
				if s := p.Status(); s.Protocol != version {
					t.Errorf("version %d, want %d", s.Protocol, version)
				}
				sign(t, p)
			})
		}
	}
}

func TestProbeStepsThroughProvider(t *testing.T) {
	h := newHost(t, "good", "exits")
	p, err := pluginhost.NewProbe(h.opts, pluginhost.Entry{Name: "good"})
	must(t, err)
	must(t, p.Launch())
	must(t, p.Connect(t.Context()))
	m, err := p.Metadata(t.Context())
	if err != nil || m.Name != "good" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := p.CSRSign(t.Context(), request(t)); ca.ActionFor(err) != ca.Configure {
		t.Errorf("it is not configured: %v", err)
	}
	if s := p.Status(); s.Authentication != pluginhost.Channel || s.Protocol != 1 || s.PID == 0 || len(s.SHA256) != 64 {
		t.Errorf("status %+v", s)
	}
	p.Close()

	p, err = pluginhost.NewProbe(h.opts, pluginhost.Entry{Name: "exits"})
	must(t, err)
	defer p.Close()
	must(t, p.Launch())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Connect(ctx); err == nil || !strings.Contains(err.Error(), "exit status 3; last output: no licence found") {
		t.Errorf("got %v", err)
	}
}

// The temp folder is everybody's: an author's module may lie there, too.
func TestFolderNamedLikeProviderIsNotSwept(t *testing.T) {
	h := newHost(t, "good")
	base, err := os.MkdirTemp("", "run")
	must(t, err)
	defer os.RemoveAll(base)
	module := filepath.Join(base, "countersign-provider-acme")
	must(t, os.Mkdir(module, 0o700))
	h.opts.RuntimeDir = base
	sign(t, h.open(t, pluginhost.Entry{Name: "good"}))
	if _, err := os.Stat(module); err != nil {
		t.Error(err)
	}
}
