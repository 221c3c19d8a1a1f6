package program

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

// set is a service alone with further settings, that has one cluster to serve.
func set(t *testing.T, settings string) (*program, caller) {
	t.Helper()
	dir := files(t, strings.Replace(alone, "times: {drain: 0s}", settings, 1))
	write(t, filepath.Join(dir, "resources", "web.yaml"), web)
	p := start(t, dir)
	p.ready(t)
	return p, caller{tls: p.authority(t).client(t, gateway)}
}

// held is a stream that has had its first answer.
func (c caller) held(t *testing.T, p *program) stream {
	t.Helper()
	s, err := c.open(t, p.tls(t), clusterURL)
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	return s
}

func TestLimitSettingsReachServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limits string
		want   codes.Code
	}{
		{"{streams_of_identity: 1}", codes.ResourceExhausted},
		{"{streams: 1}", codes.ResourceExhausted},
		{"{connections: 1}", codes.Unavailable},
	} {
		t.Run(c.limits, func(t *testing.T) {
			t.Parallel()
			p, who := set(t, "times: {drain: 0s}\nlimits: "+c.limits)
			who.held(t, p)
			_, err := who.first(t, p.tls(t), clusterURL)
			if status.Code(err) != c.want {
				t.Errorf("%v\n%s", err, p.log)
			}
		})
	}
}

func TestStreamEndsWithItsLifetime(t *testing.T) {
	t.Parallel()
	p, who := set(t, "times: {drain: 0s, stream: 1s}")
	s, err := who.open(t, p.tls(t), clusterURL) // on a busy machine its time is up before the first answer
	if err == nil {
		err = last(s)
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("%v\n%s", err, p.log)
	}
	if metrics := p.metrics(t); !strings.Contains(metrics, `ended_streams_total{reason="age"} 1`) {
		t.Error(metrics)
	}
}

func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	p, who := set(t, "times: {drain: 1s}")
	streams := []stream{who.held(t, p), who.held(t, p), who.held(t, p)}
	if code := p.end(); code != 0 {
		t.Errorf("it ended with %d\n%s", code, p.log)
	}
	for _, s := range streams {
		if err := last(s); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "shutting down") {
			t.Errorf("a stream ended with %v", err)
		}
	}
}

func TestSecondSignalEndsDrainAtOnce(t *testing.T) {
	t.Parallel()
	p, who := set(t, "times: {drain: 5m}")
	for range 4 { // the drain ends each at a random moment: one alone may end it before the second signal counts
		who.held(t, p)
	}
	p.Signal(syscall.SIGTERM)
	p.log.await(t, `msg="(shutting down)"`)
	if code, text := p.page(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "shutting down") {
		t.Errorf("while it drains: %d %s", code, text)
	}
	if _, err := who.first(t, p.tls(t), clusterURL); status.Code(err) != codes.Unavailable {
		t.Errorf("who comes while it drains: %v", err)
	}
	p.exits = cli.ExitSignal
	late := time.After(patience)
	for { // those of the first second count as the first
		p.Signal(syscall.SIGTERM)
		select {
		case <-p.Done():
			return
		case <-late:
			t.Fatal("it goes on draining")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Operators send it to the agent.
func TestSIGHUPIsIgnored(t *testing.T) {
	t.Parallel()
	p, who := set(t, "times: {drain: 0s}")
	p.Signal(syscall.SIGHUP)
	p.log.await(t, `msg="(ignoring SIGHUP)`)
	who.held(t, p)
}

func TestNoAnswerBeforeLocalClusterSync(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	api.away.Store(true)
	dir := files(t, inKubernetes)
	write(t, filepath.Join(dir, "kube.yaml"), api.kubeconfig())
	p := start(t, dir)
	p.tls(t)
	p.log.await(t, `serving new (certificate)`)
	who := caller{tls: p.authority(t).client(t, ""), token: goodToken}
	if _, err := who.first(t, p.tls(t), secretURL, "kubernetes://x"); status.Code(err) != codes.Unavailable {
		t.Errorf("before: %v", err)
	}
	if code, text := p.page(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "Kubernetes") {
		t.Errorf("/readyz says %d %s", code, text)
	}
	if metrics := p.metrics(t); !strings.Contains(metrics, "countersign_discovery_ready 0") || !strings.Contains(metrics, `refused_streams_total{reason="not-ready"} 1`) {
		t.Error(metrics)
	}
	api.away.Store(false)
	p.ready(t)
	if s, err := who.open(t, p.tls(t), secretURL, "kubernetes://x"); err != nil {
		t.Error(err)
	} else {
		eventually(t, func() bool { return strings.Contains(p.metrics(t), "countersign_discovery_streams 1") }, "a stream is open", p.log)
		_ = s.CloseSend()
	}
}
