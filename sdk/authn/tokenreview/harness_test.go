package tokenreview

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

const ownToken = ca.Token("own.credential-of-the-reviewer.0123456789")

// tokenOf is a token that ends after life; the API server is who verifies it.
func tokenOf(name string, life time.Duration) ca.Token {
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d}`, name, now.Add(life).Unix())
	return ca.Token("eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl")
}

// good is what the API server answers to a token that it knows.
func good() map[string]any {
	return map[string]any{
		"authenticated": true, "audiences": []string{"istio-ca"},
		"user": map[string]any{
			"username": "system:serviceaccount:shop:web", "uid": "u1",
			"groups": []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"},
			"extra": map[string][]string{
				"authentication.kubernetes.io/pod-name": {"web-0"}, "authentication.kubernetes.io/pod-uid": {"u2"},
				"authentication.kubernetes.io/node-name": {"node-1"}, "other": {"x", "y"},
			},
		},
	}
}

// apiServer stands in for a cluster's, on loopback.
type apiServer struct {
	*httptest.Server
	rootFile string
	asked    atomic.Int32
	handler  atomic.Pointer[http.HandlerFunc]
}

func newAPIServer(t testing.TB) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.handler.Load())(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that a test wants to fail
	s.StartTLS()
	t.Cleanup(s.Close)
	s.rootFile = filepath.Join(t.TempDir(), "ca.crt")
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(s.rootFile, roots, 0o600); err != nil {
		t.Fatal(err)
	}
	s.says(good())
	return s
}

func (s *apiServer) answer(handler http.HandlerFunc) { s.handler.Store(&handler) }

// says has the server answer with that status from now on, to a request that is as
// the API wants it.
func (s *apiServer) says(status map[string]any) { s.answer(review(status)) }

func review(status map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q question
		content, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(content, &q); err != nil || r.Method != http.MethodPost || r.URL.Path != path ||
			q.APIVersion != apiVersion || q.Kind != kind || q.Spec.Token == "" || len(q.Spec.Audiences) != 1 || q.Spec.Audiences[0] != "istio-ca" ||
			r.Header.Get("Authorization") != "Bearer "+ownToken.Reveal() || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, `{"message":"the test's request is malformed"}`, http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": q.Spec, "status": status})
	}
}

func (s *apiServer) config() Config {
	return Config{
		URL: s.URL, RootFile: s.rootFile, Audiences: []string{"istio-ca"}, Cluster: "east",
		ServiceAccounts: "spiffe://cluster.local/ns/{namespace}/sa/{service_account}",
		Token:           token.Static{Value: ownToken},
		Now:             func() time.Time { return now },
	}
}

func reviewer(t testing.TB, cfg Config) *Reviewer {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func with(token ca.Token) authn.Credential { return authn.Credential{Token: token} }
