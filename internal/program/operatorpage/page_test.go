package operatorpage

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get asks a page by a Host of its own.
func get(t *testing.T, p *Page, host, path string) int {
	t.Helper()
	conn, err := net.Dial(p.listener.Addr().Network(), p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

func listen(t *testing.T, address string, local bool) *Page {
	t.Helper()
	p, err := Listen(address, local, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestLocalPageAnswersOnlyLocalHost(t *testing.T) {
	local, open := listen(t, "127.0.0.1:0", true), listen(t, "127.0.0.1:0", false)
	socket := listen(t, "unix:"+filepath.Join(t.TempDir(), "page"), true)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:9901": 200, "127.0.0.1:9901": 200, "[::1]:9901": 200, "127.8.8.8": 200,
		"rebound.example": 403, "rebound.example:9901": 403, "192.0.2.1": 403, "localhost.example": 403,
	} {
		if got := get(t, local, host, "/healthz"); got != want {
			t.Errorf("asked for %s, the local page answers %d", host, got)
		}
		if got := get(t, open, host, "/healthz"); got != 200 {
			t.Errorf("asked for %s, the open page answers %d", host, got)
		}
		if got := get(t, socket, host, "/healthz"); got != 200 {
			t.Errorf("asked for %s, the socket answers %d", host, got)
		}
	}
}

func TestNotReadyBeforeContentIsShown(t *testing.T) {
	p := listen(t, "127.0.0.1:0", true)
	if got := get(t, p, "localhost", "/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d", got)
	}
	p.Show(Say(http.StatusTeapot, "tea"))
	if got := get(t, p, "localhost", "/readyz"); got != http.StatusTeapot {
		t.Errorf("/readyz answers %d", got)
	}
}

func TestNoAddressMeansNoPage(t *testing.T) {
	p, err := Listen("", true, nil)
	if err != nil || p != nil {
		t.Errorf("%v, %v", p, err)
	}
	p.Show(http.NotFoundHandler())
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestTakenAddressIsReported(t *testing.T) {
	taken := listen(t, "127.0.0.1:0", true)
	var log logtest.Log
	_, err := Listen(taken.listener.Addr().String(), true, slog.New(slog.NewTextHandler(&log, nil)))
	if err == nil || !strings.Contains(err.Error(), "address already in use") || log.String() != "" {
		t.Errorf("%v, %s", err, &log)
	}
}
