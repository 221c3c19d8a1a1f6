package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/ondemand"
)

// shop decides which names may have a certificate, as a user's own program does: those that begin
// with "a" and a number of others. It counts how often it is asked.
type shop struct {
	*httptest.Server
	asked atomic.Int64
	away  atomic.Bool
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		switch name := r.URL.Query().Get("domain"); {
		case s.away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case !strings.HasPrefix(name, "a"):
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// startOnDemand starts an agent with a rule for *.shop.example.org, which asks a shop.
func startOnDemand(t *testing.T, config agentConfig) (*agent, *shop) {
	t.Helper()
	s := openShop(t)
	config.selfSigned = true
	config.secrets = []map[string]any{{"name": "shops", "match": "*.shop.example.org", "ttl": "1h", "on_demand": map[string]any{"ask": map[string]any{"url": s.URL}, "wait": handshakeWait.String()}}}
	return startAgent(t, config), s
}

// rule is the state of a rule as the agent reports it.
func (a *agent) rule(t *testing.T, name string) ondemand.RuleStatus {
	t.Helper()
	var page struct {
		OnDemand ondemand.Status `json:"on_demand"`
	}
	if err := json.Unmarshal([]byte(getPage(t, a.status, "/status")), &page); err != nil {
		return ondemand.RuleStatus{} // an agent that starts answers 404
	}
	for _, r := range page.OnDemand.Rules {
		if r.Name == name {
			return r
		}
	}
	return ondemand.RuleStatus{}
}

// handshakeWait is the longest pause of a handshake. A busy machine may need as long to start a provider, or to
// order 60 names at two agents, and a refusal at once takes less there. Envoy waits for 30 s.
const handshakeWait = 25 * time.Second

// mustBeRefused demands that a handshake for a name fails before the longest pause of one.
func mustBeRefused(t *testing.T, address, name string) {
	t.Helper()
	mustBeRefusedIn(t, address, name, handshakeWait-5*time.Second)
}

func mustBeRefusedIn(t *testing.T, address, name string, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	if _, err := shakeHands(ctx, address, name); err == nil || errors.Is(err, context.DeadlineExceeded) || time.Since(began) > within {
		t.Errorf("a handshake for %s took %s: %v; want a refusal at once", name, time.Since(began), err)
	}
}

func TestEnvoyGetsCertificatesOnDemand(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	a, s := startOnDemand(t, agentConfig{})
	_, address := startOnDemandEnvoy(t, a.socket)

	t.Run("a new name", func(t *testing.T) {
		mustShakeHands(t, address, "a.shop.example.org")
		began := time.Now()
		mustShakeHands(t, address, "a2.shop.example.org")
		t.Logf("a new name took %s", time.Since(began))
	})
	t.Run("in another case", func(t *testing.T) {
		before := a.rule(t, "shops").Orders
		mustShakeHands(t, address, "A.shop.Example.ORG")
		if after := a.rule(t, "shops").Orders; after != before {
			t.Errorf("the name in another case was ordered: %d orders, %d before", after, before)
		}
	})
	t.Run("refused", func(t *testing.T) {
		mustBeRefused(t, address, "b.shop.example.org")
		before := s.asked.Load()
		mustBeRefused(t, address, "b.shop.example.org")
		mustBeRefused(t, address, "a.b.shop.example.org") // no rule has two labels
		mustBeRefused(t, address, "other.example.com")
		if after := s.asked.Load(); after != before {
			t.Errorf("refusals that are remembered or match no rule were asked about %d times", after-before)
		}
		if refused := a.rule(t, "shops").Refused[ondemand.Denied]; refused != 2 {
			t.Errorf("the rule has refused %d times, want twice", refused)
		}
	})
	t.Run("100 handshakes", func(t *testing.T) { hundredHandshakes(t, a, s, address) })
	t.Run("another rule", func(t *testing.T) {
		mustBeRefused(t, address, "a.store.example.org")
		a.reconfigure(t, func(c map[string]any) {
			rule := c["secrets"].([]any)[2].(map[string]any)
			rule["match"] = []any{"*.store.example.org"}
		})
		poll(t, "a name of the new rule", func() bool {
			_, err := shakeHands(t.Context(), address, "a.store.example.org")
			return err == nil
		})
		mustShakeHands(t, address, "a.shop.example.org") // held, and served to its end
		mustBeRefused(t, address, "a3.shop.example.org")
	})
	if names := a.metric(t, "countersign_ondemand_names", `rule="shops"`, `state="held"`); names == 0 {
		t.Error("the metrics show no held name")
	}
}

// hundredHandshakes are at the same time, for one new name.
func hundredHandshakes(t *testing.T, a *agent, s *shop, address string) {
	before, asked := a.rule(t, "shops").Orders, s.asked.Load()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	var failed atomic.Int64
	for range 100 {
		all.Go(func() {
			if _, err := shakeHands(ctx, address, "a100.shop.example.org"); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of 100 handshakes failed", n)
	}
	if orders, questions := a.rule(t, "shops").Orders-before, s.asked.Load()-asked; orders != 1 || questions != 1 {
		t.Errorf("100 handshakes made %d orders and %d questions, want one of each", orders, questions)
	}
}

// A certificate that is held is not ordered again: not at a restart, and not while nothing decides.
// getRulesByReload restarts the agent without its rule, which a reload then adds.
func (a *agent) getRulesByReload(t *testing.T) {
	t.Helper()
	a.stop(t, syscall.SIGTERM)
	var all []any
	a.edit(t, func(c map[string]any) {
		all = c["secrets"].([]any)
		c["secrets"] = all[:2]
	})
	a.start(t)
	a.reconfigure(t, func(c map[string]any) { c["secrets"] = all })
	poll(t, "the rule", func() bool { return a.rule(t, "shops").Name != "" })
}

func TestRestartKeepsCertificatesOnDemandWithoutADecision(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	a, s := startOnDemand(t, agentConfig{state: true})
	a.getRulesByReload(t)
	_, address := startOnDemandEnvoy(t, a.socket)
	const names = 50
	serials := map[string]string{}
	name := func(i int) string { return fmt.Sprintf("a%d.shop.example.org", i) }
	for i := range names {
		serials[name(i)] = mustShakeHands(t, address, name(i)).SerialNumber.String()
	}
	s.away.Store(true)
	a.stop(t, syscall.SIGTERM)
	mustShakeHands(t, address, name(0)) // Envoy has it
	a.start(t)
	_, fresh := startOnDemandEnvoy(t, a.socket)
	for i := range names {
		if got := mustShakeHands(t, fresh, name(i)).SerialNumber.String(); got != serials[name(i)] {
			t.Errorf("%s has another certificate after the restart", name(i))
		}
	}
	if r := a.rule(t, "shops"); r.Orders != 0 || r.Held != names {
		t.Errorf("after the restart, %d names are held and %d were ordered; want %d and none", r.Held, r.Orders, names)
	}
	mustBeRefusedIn(t, fresh, "a-new.shop.example.org", patience)
}

// The example is one command from nothing to two names that are configured nowhere.
func TestExampleOfCertificatesOnDemand(t *testing.T) {
	t.Parallel()
	envoy := needEnvoy(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	_, port, err := net.SplitHostPort(proctest.FreeAddress(t))
	mustDo(t, err)
	said := checked(t, ".", programs.File(t, "examples/on-demand/demo.sh"), binaries(t), envoy, port)
	for _, want := range []string{"https://a.shop.example.org\nhello", "https://b.shop.example.org\nhello", "alert handshake failure"} {
		if !strings.Contains(said, want) {
			t.Errorf("the example does not show %q:\n%s", want, said)
		}
	}
}
