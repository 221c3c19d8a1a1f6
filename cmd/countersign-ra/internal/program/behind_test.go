package program

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// series are those of a collector that are 1, each with its labels.
func series(t *testing.T, of prometheus.Collector) (all []string) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(of)
	families, err := registry.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, label := range m.GetLabel() { // sorted by name
				line += " " + label.GetValue()
			}
			if m.GetGauge().GetValue() == 1 {
				all = append(all, line)
			}
		}
	}
	return all
}

// A cluster that returns after hours lacks the new root until it is written.
func TestPodsOfAClusterThatReturnsWaitForItsRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Parse("c.yaml", []byte(brief))
		if err != nil {
			t.Fatal(err)
		}
		engine := ratest.Engine(t, ra.Config{
			Policy: c.Policy(), Doors: c.Doors(), Audit: ratest.NoAudit, Log: slog.New(slog.DiscardHandler),
			Authorities: []ra.Authority{{Name: "vault", Client: catest.NewCA(catest.Options{}), Roots: ra.Roots{Confirmed: true}}},
		})
		defer engine.Close()
		synctest.Wait()
		s := &service{config: c, log: slog.New(slog.DiscardHandler)}
		session := &leaderSession{service: s, engine: engine, clusterRuns: map[string]*clusterRun{}, returned: map[string]time.Time{}}
		session.written = newWritten(engine, publishersOf(c))
		door := &door{of: s}
		door.engine.Store(engine)

		east := fleet.Status{ID: "east", State: fleet.Synced, Serving: true}
		look := func(by time.Duration) {
			for range by / lookEvery {
				session.written.members([]string{"home", "east"})
				session.leaveBehind([]fleet.Status{{ID: "home", State: fleet.Synced, Serving: true}, east})
				time.Sleep(lookEvery)
			}
		}
		waits := func(want bool) {
			t.Helper()
			if got := slices.Contains(engine.Behind("vault"), "east"); got != want {
				t.Errorf("its pods wait: %t, want %t", got, want)
			}
			if !want {
				return
			}
			if _, err := door.reviews(&c)("east").Authenticate(t.Context(), authn.Credential{}); !errors.Is(err, authn.ErrUnavailable) {
				t.Errorf("its pods get %v", err)
			}
		}
		session.written.hook("home", meshRoots)("vault", engine.Roots("vault"))
		session.written.hook("east", meshRoots)("vault", pki.NewBundle())
		look(3 * time.Hour)
		waits(false) // it lacks the root, and can be reached
		s.session.Store(session)
		if got, left := series(t, meshCollector{s}), session.written.leftIn("east"); !slices.Equal(left, []string{"roots of vault in the mesh"}) ||
			!slices.Equal(got, []string{"countersign_ra_roots_left_behind vault east the mesh"}) {
			t.Errorf("the metrics have %q, the page %q", got, left)
		}
		east.State, east.Away = fleet.Away, time.Now()
		look(time.Minute)
		waits(true)
		look(48 * time.Hour)
		waits(true)
		east.State, east.Away = fleet.Synced, time.Time{}
		look(14 * time.Minute)
		waits(true)
		look(2 * time.Minute) // not for ever: nothing can be written there
		waits(false)
	})
}
