package program

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/quorum"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

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
		session.quorum = quorum.New(engine, publishersOf(c))
		door := &door{of: s}
		door.engine.Store(engine)

		east := fleet.Status{ID: "east", State: fleet.Synced, Serving: true}
		look := func(by time.Duration) {
			for range by / lookEvery {
				session.quorum.Members([]string{"home", "east"})
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
		session.quorum.Hook("home", quorum.MeshRoots)("vault", engine.Roots("vault"))
		session.quorum.Hook("east", quorum.MeshRoots)("vault", pki.NewBundle())
		look(3 * time.Hour)
		waits(false) // it lacks the root, and can be reached
		s.session.Store(session)
		if got, left := gathered(t, metrics.Source{Left: s.left, Meshes: s.meshes}), session.quorum.LeftIn("east"); !slices.Equal(left, []string{"roots of vault in the mesh"}) ||
			!maps.Equal(got, map[string]float64{"roots_left_behind vault east the mesh": 1}) {
			t.Errorf("the metrics have %v, the page %q", got, left)
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
