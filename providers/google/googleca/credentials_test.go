package googleca

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// accountKey is a service account's key file.
func accountKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return fileOf(t, inJSON(t, map[string]any{
		"type": "service_account", "project_id": "shop-1", "private_key_id": "k1", "client_email": "agent@shop-1.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": "https://oauth2.googleapis.com/token",
	}))
}

func inJSON(t *testing.T, value any) []byte {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFileAndADCCredentialsAuthenticateEachCall(t *testing.T) {
	key := accountKey(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", key)
	for name, change := range map[string]func(*Settings){
		"file": func(s *Settings) { s.CredentialsFile = setting.File(key) },
		"adc":  func(*Settings) {},
	} {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			settings := server.settings()
			settings.Credentials, settings.QuotaProject = "", "billing-1"
			change(&settings)
			c := server.open(t, settings)
			req, check := ask(t)
			req.Token = ""
			reply, err := c.CSRSign(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			testkit.Passes(t, reply, check)
			call := server.last(t).metadata
			if got := call["authorization"]; len(got) != 1 || !strings.HasPrefix(got[0], "Bearer ey") || call["x-goog-user-project"][0] != "billing-1" {
				t.Errorf("the metadata are %v", call)
			}
			if _, err := c.Roots(t.Context()); err != nil {
				t.Error(err)
			}
			req.Token = theToken
			_, err = c.CSRSign(t.Context(), req)
			mustBe(t, err, ca.ErrInvalid, "the request has a token, but credentials is", "set credentials to token")
			if n := len(server.calls()); n > 0 {
				t.Errorf("%d were sent", n)
			}
		})
	}
}

func TestCredentialsOfOtherUniverseAreNotSent(t *testing.T) {
	server := start(t)
	settings := server.settings()
	settings.Credentials, settings.CredentialsFile, settings.UniverseDomain = "", setting.File(accountKey(t)), "cloud.example"
	req, _ := ask(t)
	req.Token = ""
	_, err := server.open(t, settings).CSRSign(t.Context(), req)
	if err == nil || !strings.Contains(err.Error(), "cloud.example") || len(server.calls()) > 0 {
		t.Errorf("got %v, %d calls", err, len(server.calls()))
	}
}

func TestInvalidCredentialsFileIsNotQuoted(t *testing.T) {
	const secret = "the-content-is-secret"
	for name, content := range map[string]string{
		"no-json":      secret,
		"no-type":      `{"private_key": "` + secret + `"}`,
		"unknown-type": `{"type": "` + secret + `"}`,
		"no-key":       `{"type": "service_account", "private_key": "` + secret + `"}`,
	} {
		settings := Settings{CAPool: thePool, CredentialsFile: setting.File(fileOf(t, []byte(content)))}
		_, err := Open(t.Context(), settings)
		if err == nil { // the library looks at a key when it is used
			continue
		}
		mustBe(t, err, ca.ErrUnavailable, string(settings.CredentialsFile))
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Open(t.Context(), Settings{CAPool: thePool, CredentialsFile: "/nowhere/key.json"})
	mustBe(t, err, ca.ErrUnavailable, "/nowhere/key.json")
	_, err = Open(t.Context(), Settings{CAPool: thePool, Credentials: Token, RootFile: "/nowhere/root.pem"})
	mustBe(t, err, ca.ErrUnavailable, "root_file", "/nowhere/root.pem")
	_, err = Open(t.Context(), Settings{CAPool: thePool, Credentials: Token, RootFile: setting.File(fileOf(t, []byte("hello")))})
	mustBe(t, err, ca.ErrUnavailable, "root_file", "it holds no PEM block")
}

func TestUnavailableTokenDiffersFromRefusedToken(t *testing.T) {
	server := start(t)
	var code int
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), "subject_token=the.kubernetes.token") {
			t.Errorf("the exchange was asked with %s", body)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, map[int]string{200: `{"access_token":"federated","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`,
			403: `{"error":"invalid_grant","error_description":"not for ` + string(body) + `"}`}[code])
	}))
	t.Cleanup(sts.Close)
	settings := server.settings()
	settings.Credentials = ""
	settings.CredentialsFile = setting.File(fileOf(t, inJSON(t, map[string]any{
		"type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": sts.URL,
		"credential_source": map[string]any{"file": fileOf(t, []byte("the.kubernetes.token"))},
	})))
	for status, want := range map[int]*ca.Error{http.StatusForbidden: ca.ErrUnauthenticated, http.StatusBadRequest: ca.ErrUnauthenticated, http.StatusNotImplemented: ca.ErrUnavailable} {
		code = status
		req, _ := ask(t)
		req.Token = ""
		_, err := server.open(t, settings).CSRSign(t.Context(), req)
		mustBe(t, err, want, thePool, fmt.Sprintf("get a token for the service: the token service answered %d", status))
		if said := strings.Contains(err.Error(), "invalid_grant"); said != (status == 403) || strings.Contains(err.Error(), "the.kubernetes") {
			t.Errorf("got %v", err)
		}
	}
	code = http.StatusOK
	req, check := ask(t)
	req.Token = ""
	reply, err := server.open(t, settings).CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Passes(t, reply, check)
	if got := server.last(t).metadata["authorization"]; got[0] != "Bearer federated" {
		t.Errorf("asked with %q", got)
	}
}
