package exchange_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token/exchange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	subject = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ3ZWIifQ.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"
	good    = `{"access_token":"given","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`
)

// sts is a server on loopback with scripted answers, and its last request.
type sts struct {
	*httptest.Server
	roots string // a file

	mu     sync.Mutex
	form   url.Values
	header http.Header
	calls  int
}

// serve starts one; answer gets the parsed form in the request.
func serve(t *testing.T, answer http.HandlerFunc) *sts {
	t.Helper()
	s := &sts{}
	s.Server = httptest.NewUnstartedServer(s.note(answer))
	s.Config.ErrorLog = silent()
	s.StartTLS()
	t.Cleanup(s.Close)
	s.roots = filepath.Join(t.TempDir(), "roots.pem")
	write(t, s.roots, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	return s
}

func (s *sts) note(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := r.ParseForm()
		s.mu.Lock()
		s.form, s.header = r.PostForm, r.Header
		s.calls++
		s.mu.Unlock()
		if err != nil || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer(w, r)
	}
}

func (s *sts) asked() (url.Values, http.Header, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.form, s.header, s.calls
}

// client returns a client of the server; change may change its settings.
func (s *sts) client(t *testing.T, change func(*exchange.Config)) *exchange.Client {
	t.Helper()
	config := exchange.Config{URL: s.URL + "/token", RootFile: s.roots, Timeout: 2 * time.Minute}
	if change != nil {
		change(&config)
	}
	client, err := exchange.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func trade(ctx context.Context, client *exchange.Client) (ca.ExchangedToken, error) {
	return client.ExchangeToken(ctx, ca.TokenRequest{SubjectToken: subject, Audience: "ca"})
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
