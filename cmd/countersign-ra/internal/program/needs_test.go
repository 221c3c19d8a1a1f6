package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/share"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// All replicas have the same API server: if each left the Service, clients would get no answer at all.
func TestSharedDependencyTakesNoReplicaOut(t *testing.T) {
	t.Parallel()
	r, home, _ := newMesh(t, forMesh)
	for _, n := range r.report(t).Needs {
		if n.Error != "" {
			t.Errorf("%+v", n)
		}
	}
	home.away.Store(true)
	r.until(t, "the Lease cannot be reached", func() bool {
		return strings.Contains(r.report(t).NotReady, "the Lease cannot be reached")
	})
	r.measures(t, `countersign_ra_dependency{dependency="lease"} 0`, `countersign_ra_dependency{dependency="audit_log"} 1`)
	if code, why := r.page("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d %s", code, why)
	}
	home.away.Store(false)
	r.until(t, "the Lease can be reached", func() bool {
		_, metrics := r.page("/metrics")
		return strings.Contains(metrics, `countersign_ra_dependency{dependency="lease"} 1`)
	})
}

func TestNoProviderThatIsReadyIsADependency(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]overview.Provider{
		"":                     nil,
		"a is backoff: killed": {{Name: "a", State: "backoff", LastError: "killed"}},
	} {
		if err := noneReady(all); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", all, err)
		}
		if err := noneReady(append(all, overview.Provider{Name: "b", State: "ready"})); err != nil {
			t.Error(err)
		}
	}
}

func TestDocumentListsDependencies(t *testing.T) {
	t.Parallel()
	document := read(t, filepath.Join("..", "..", "..", "..", "docs", "ra.md"))
	for _, n := range needs {
		leaves := "yes"
		if n.shared {
			leaves = "until it was there once"
		}
		if row := fmt.Sprintf("| %s | %s | %s |", n.name, n.effect, leaves); !strings.Contains(document, row) {
			t.Errorf("docs/ra.md lacks the row\n%s", row)
		}
	}
}

// A new version waits outside the Service while its CA is away, with the reason, and joins it without a
// restart. The former version serves meanwhile. Once it has joined, an outage does not take it out.
func TestNewReplicaIsReadyOnceItsCAIs(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	dir := files(t, api, strings.Replace(usual, "{dir: DIR/ca, self_signed: true}", "{dir: DIR/ca, poll_interval: 100ms}", 1))
	r := start(t, dir)
	r.until(t, "it has the reason", func() bool {
		code, why := r.page("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(why, "no provider is ready")
	})
	r.measures(t, `countersign_ra_dependency{dependency="providers"} 0`)
	root := certtest.Root(t)
	if err := os.Mkdir(filepath.Join(dir, "ca"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"root-cert.pem": root.PEM(), "ca-cert.pem": root.PEM(), "ca-key.pem": root.KeyPEM(t)} {
		write(t, filepath.Join(dir, "ca", name), string(text))
	}
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
}

// one returns the state of a need by name.
func one(s *service, name string, met *atomic.Bool) status.Need {
	i := slices.IndexFunc(needs, func(n need) bool { return n.name == name })
	return needs[i].state(s, met)
}

// wants compares the state of a need with what is expected.
func wants(t *testing.T, got status.Need, because string, tolerated bool) {
	t.Helper()
	if (got.Error == "") != (because == "") || !strings.Contains(got.Error, because) || got.Tolerated != tolerated {
		t.Errorf("%+v, want %q, tolerated: %t", got, because, tolerated)
	}
}

// lost is a damaged record of roots.
type lost struct{}

func (lost) Load(context.Context, string) ([]byte, error) { return []byte("{"), nil }
func (lost) Save(context.Context, string, []byte) error   { return nil }

func TestRootsThatAreTrustedNowhereAreADependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Parse("c.yaml", []byte(brief))
		if err != nil {
			t.Fatal(err)
		}
		engine := ratest.Engine(t, ra.Config{
			Policy: c.Policy(), Doors: c.Doors(), Audit: ratest.NoAudit, Log: slog.New(slog.DiscardHandler), Store: lost{},
			Authorities: []ra.Authority{{Name: "vault", Client: catest.NewCA(catest.Options{}), Roots: ra.Roots{Confirmed: true}}},
		})
		defer engine.Close()
		var met atomic.Bool
		s := &service{config: c}
		wants(t, one(s, "roots", &met), "", false) // no engine runs
		met.Store(false)
		s.session.Store(&leaderSession{service: s, engine: engine})
		synctest.Wait()
		wants(t, one(s, "roots", &met), "no root of any authority", false)
		engine.RootsWritten("vault", engine.Roots("vault"))
		time.Sleep(11 * time.Minute)
		wants(t, one(s, "roots", &met), "", false)
		if !met.Load() {
			t.Error("it was not met")
		}
	})
}

// shares is a record of shares that may be out of reach.
type shares struct {
	away    atomic.Bool
	record  []byte
	version int
}

func (s *shares) Load(context.Context) ([]byte, string, error) {
	if s.away.Load() {
		return nil, "", errors.New("forbidden")
	}
	return s.record, strconv.Itoa(s.version), nil
}

func (s *shares) Save(_ context.Context, record []byte, _ string) error {
	s.record = record
	s.version++
	return nil
}

func TestQuotasThatCannotBeSharedAreADependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, engine := &shares{}, &ra.Engine{}
		store.away.Store(true)
		q := &quotas{}
		var err error
		if q.keeper, err = share.New(share.Config{
			Store: store, Wants: func() map[string]float64 { return map[string]float64{"vault": 1} }, Log: slog.New(slog.DiscardHandler),
			Changed: func(name string) { q.began.Store(q.began.Load() || q.keeper.Share(name) > 0) },
		}); err != nil {
			t.Fatal(err)
		}
		defer q.run(engine)()
		var met atomic.Bool
		s := &service{door: &door{}}
		s.door.quotas.Store(q)
		time.Sleep(time.Minute)
		wants(t, one(s, "quotas", &met), "no share", false)
		store.away.Store(false)
		time.Sleep(time.Minute)
		wants(t, one(s, "quotas", &met), "", false)
		store.away.Store(true)
		time.Sleep(time.Minute)
		wants(t, one(s, "quotas", &met), "forbidden", true) // for all replicas alike
	})
}
