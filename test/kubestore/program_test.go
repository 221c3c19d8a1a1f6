//go:build e2e

package kubestore_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// shop are agents as they are shipped, and their CA: a folder, which an outage file keeps from signing
// and which counts what it signs.
type shop struct {
	*site
	bin, ca, outage, calls string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	dir := proctest.Folder(t)
	s := &shop{
		site: newSite(t), bin: programs.Folder(t, "countersign", "countersign-provider-moody"),
		ca: filepath.Join(dir, "ca"), outage: filepath.Join(dir, "outage"), calls: filepath.Join(dir, "calls"),
	}
	must(t, os.Mkdir(s.ca, 0o700))
	return s
}

// start starts an agent and returns it with its socket.
func (s *shop) start(t *testing.T) (*proctest.Process, string) {
	t.Helper()
	dir := proctest.Folder(t)
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, content, 0o600))
		return path
	}
	settings := map[string]any{"dir": s.ca, "self_signed": true, "outage": s.outage, "calls": s.calls, "asks": "", "mood": dir + "/mood", "accept": dir + "/accept"}
	config, err := json.Marshal(map[string]any{
		"dev": true, "provider_dirs": []string{s.bin}, "socket": map[string]any{"path": dir + "/socket"},
		"providers": []any{map[string]any{"name": "moody", "settings": settings}},
		"secrets":   []any{map[string]any{"match": "*.shop.example.org", "on_demand": map[string]any{"wait": "1m"}}},
		"store": map[string]any{"kubernetes": map[string]any{
			"namespace": namespace, "tls_secrets": true, "url": s.URL, "root_file": file("root.pem", s.Cluster.CA), "token_file": file("token", []byte(s.token.Reveal())),
		}},
	})
	must(t, err)
	cmd := exec.Command(filepath.Join(s.bin, "countersign"), "agent", "--config", file("countersign.yaml", config))
	cmd.Dir, cmd.Env = dir, proctest.Environ(dir)
	return proctest.Start(t, cmd), dir + "/socket"
}

// get is what a client of an agent gets under a name.
func (s *shop) get(t *testing.T, socket, name string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	for {
		cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "countersign"), "secrets", "get", name, "--socket", socket, "-o", "json")
		cmd.Env = proctest.Environ(t.TempDir())
		out, err := cmd.Output()
		if err == nil {
			return out
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", name, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *shop) signed(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(s.calls)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// ordered waits until a record has an order and returns its ID.
func (s *shop) ordered(t *testing.T, name string) (id string) {
	t.Helper()
	kubetest.Await(t, "the order in the store", func(ctx context.Context) (bool, error) {
		list, err := s.Client().CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, record := range list.Items {
			var kept struct{ Order struct{ ID string } }
			if record.Annotations["countersign.dev/name"] == name && json.Unmarshal(record.Data["content"], &kept) == nil {
				id = kept.Order.ID
			}
		}
		return id != "", nil
	})
	return id
}

func TestRealProgramsShareAStore(t *testing.T) {
	s := newShop(t)
	_, first := s.start(t)
	killed, second := s.start(t)
	if one, other := s.get(t, first, web), s.get(t, second, web); fingerprint(t, one) != fingerprint(t, other) || len(s.signed(t)) != 1 {
		t.Errorf("%s\n%s\n%q are signed", one, other, s.signed(t))
	}

	// The CA is away when an agent orders. The agent is killed, and another one continues the order.
	const other = "b.shop.example.org"
	must(t, os.WriteFile(s.outage, nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	asks := exec.CommandContext(ctx, filepath.Join(s.bin, "countersign"), "secrets", "watch", other, "--socket", second)
	asks.Env = proctest.Environ(t.TempDir())
	must(t, asks.Start())
	id := s.ordered(t, other)
	killed.Kill()
	cancel()
	_ = asks.Wait() // it was ended
	must(t, os.Remove(s.outage))
	begun := time.Now()
	s.get(t, first, other)
	t.Logf("the certificate was there %s after the agent was killed", time.Since(begun))
	if signed := s.signed(t); len(signed) != 2 || signed[1] != id {
		t.Errorf("%q are signed, want %s", signed, id)
	}
	s.Stop()
	s.get(t, first, web)
	s.get(t, first, other)
}

// fingerprint is that of the certificate that a client shows.
func fingerprint(t *testing.T, shown []byte) string {
	t.Helper()
	var got struct {
		Certificates []struct{ Fingerprint string }
	}
	must(t, json.Unmarshal(shown, &got))
	if len(got.Certificates) == 0 {
		t.Fatalf("%s", shown)
	}
	return got.Certificates[0].Fingerprint
}
