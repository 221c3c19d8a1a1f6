package googleca

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// tokenService is Google's token service and IAM on loopback, by TLS.
type tokenService struct {
	*httptest.Server
	root string // file with the roots of its certificate

	mu     sync.Mutex
	forms  []map[string]string // of the token service
	bodies []string            // of IAM, after its bearer token
	answer http.HandlerFunc    // of the token service; nil: all is well
	iam    http.HandlerFunc
}

func startTokens(t *testing.T) *tokenService {
	t.Helper()
	authority := catest.NewCA(catest.Options{})
	s := &tokenService{root: fileOf(t, authority.Bundle().PEM())}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/token", s.exchange)
	mux.HandleFunc("POST /v1/projects/-/serviceAccounts/{call}", s.impersonate)
	s.Server = httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pairOf(t, authority)}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *tokenService) url() string { return strings.Replace(s.URL, "127.0.0.1", "localhost", 1) }

func (s *tokenService) exchange(w http.ResponseWriter, r *http.Request) {
	form := map[string]string{"content-type": r.Header.Get("Content-Type")}
	_ = r.ParseForm()
	for name := range r.PostForm {
		form[name] = r.PostForm.Get(name)
	}
	s.mu.Lock()
	s.forms = append(s.forms, form)
	answer := s.answer
	s.mu.Unlock()
	switch {
	case answer != nil:
	case form["subject_token"] == staleToken.Reveal():
		answer = saying(http.StatusBadRequest, `{"error":"invalid_grant","error_description":"The JWT has expired"}`)
	default:
		answer = saying(http.StatusOK, allIsWell)
	}
	answer(w, r)
}

func (s *tokenService) impersonate(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.bodies = append(s.bodies, r.PathValue("call")+" "+r.Header.Get("Authorization")+" "+string(body))
	answer := s.iam
	s.mu.Unlock()
	if answer == nil {
		answer = saying(http.StatusOK, `{"accessToken":"ya29.account","expireTime":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`)
	}
	answer(w, r)
}

func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// answers has the token service answer otherwise.
func (s *tokenService) answers(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *tokenService) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.forms)
}

func (s *tokenService) settings() Settings {
	return Settings{CAPool: thePool, RootFile: setting.File(s.root), Exchange: &Exchange{Audience: theAudience, STSURL: looseURL(s.url() + "/v1/token"), AllowOtherHosts: true}}
}
