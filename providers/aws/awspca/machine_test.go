package awspca

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// The paths of the fakes, and what they demand.
const (
	podPath     = "/v1/credentials"
	podToken    = ca.Token("ZXlKLXRva2VuLW9mLWEtcG9kLW9mLXRoZS10ZXN0")
	nextToken   = ca.Token("bmV4dC10b2tlbi1vZi1hLXBvZC1vZi10aGUtdGVzdA")
	imdsToken   = ca.Token("AQAEAFTNrA4eEGx0AQgJ1arIq-TokenOfATest00")
	imdsTokens  = "/latest/api/token"
	imdsRoles   = "/latest/meta-data/iam/security-credentials/"
	imdsRole    = "mesh-node"
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
)

// machine is what AWS puts beside a workload, which answers over plain HTTP: the agent of EKS
// Pod Identity, and EC2's instance metadata, of which it has version 2 only.
type machine struct {
	*httptest.Server
	mu    sync.Mutex
	token ca.Token // of the pod
	asked []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{token: podToken}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, r.Method+" "+r.URL.Path)
	own := r.Header.Get(tokenHeader) == imdsToken.Reveal()
	switch r.Method + " " + r.URL.Path {
	case "GET " + podPath:
		m.answerPod(w, r)
	case "PUT " + imdsTokens:
		w.Header().Set(ttlHeader, r.Header.Get(ttlHeader))
		saying(http.StatusOK, imdsToken.Reveal())(w, r)
	case "GET " + imdsRoles:
		w.Header().Set("Content-Type", "text/plain")
		saying(status(own), imdsRole)(w, r)
	case "GET " + imdsRoles + imdsRole:
		saying(status(own), credentialsJSON())(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (m *machine) answerPod(w http.ResponseWriter, r *http.Request) {
	if given := r.Header.Get("Authorization"); given != m.token.Reveal() {
		w.Header().Set("Content-Type", "application/json")
		saying(http.StatusBadRequest, `{"code": "InvalidTokenException", "message": "not with `+given+`"}`)(w, r)
		return
	}
	saying(http.StatusOK, credentialsJSON())(w, r)
}

func status(admitted bool) int {
	if admitted {
		return http.StatusOK
	}
	return http.StatusUnauthorized
}

// credentialsJSON are the role's, which end so soon that each call fetches them again.
func credentialsJSON() string {
	return fmt.Sprintf(`{"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": %q, "SecretAccessKey": %q, "Token": %q, "Expiration": %q}`,
		roleKeys.AccessKeyID, roleKeys.SecretAccessKey, roleKeys.SessionToken, time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
}

// has reports whether the machine was asked so.
func (m *machine) has(asked string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.asked, asked)
}

// agentWith runs an agent whose provider has these variables, by the entry's env.
func agentWith(t *testing.T, s *service, env map[string]string) *testkit.Agent {
	t.Helper()
	s.keys = map[string]aws.Credentials{roleKeys.AccessKeyID: roleKeys}
	s.listen(t)
	dir := testkit.Folder(t)
	config := map[string]any{
		"providers":    []any{map[string]any{"name": "aws", "env": env, "settings": s.socket(t, Settings{CAARN: theARN})}},
		"trust_domain": "example.org", "namespace": "shop", "service_account": "web", "ttl": "2s",
		"socket": map[string]any{"path": filepath.Join(dir, "s")},
	}
	must(t, os.WriteFile(filepath.Join(dir, "c.yaml"), jsonOf(t, config), 0o600))
	return testkit.StartAgent(t, dir, testkit.Program(t, "countersign-provider-aws"), []string{"--config", filepath.Join(dir, "c.yaml")}, nil)
}

func mustServe(t *testing.T, a *testkit.Agent) {
	t.Helper()
	if out := a.Watch(2); !strings.Contains(out, webID) { // the current certificate, and a rotation
		t.Errorf("watched %s", out)
	}
}

func mustHideTokens(t *testing.T, text string) {
	t.Helper()
	mustHide(t, text)
	for _, token := range []ca.Token{podToken, nextToken, imdsToken} {
		if strings.Contains(text, token.Reveal()) {
			t.Errorf("a token is in %s", text)
		}
	}
}

// EKS replaces the token while the pod runs.
func TestAgentSignsWithPodIdentityAndReadsReplacedToken(t *testing.T) {
	t.Parallel()
	s, m := newService(pki.ECDSAP256), newMachine(t)
	file := fileOf(t, []byte(podToken.Reveal()))
	a := agentWith(t, s, map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": m.URL + podPath, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file})
	mustServe(t, a)
	must(t, os.WriteFile(file, []byte(nextToken.Reveal()), 0o600))
	m.mu.Lock()
	m.token = nextToken
	m.mu.Unlock()
	mustServe(t, a)
	if mustHideTokens(t, a.Take()); m.has("PUT " + imdsTokens) {
		t.Error("the instance metadata was asked, too")
	}
}

func TestAgentSignsWithRoleOfInstanceMetadata(t *testing.T) {
	t.Parallel()
	s, m := newService(pki.ECDSAP256), newMachine(t)
	a := agentWith(t, s, map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": m.URL})
	mustServe(t, a)
	if mustHideTokens(t, a.Take()); !m.has("PUT "+imdsTokens) || !m.has("GET "+imdsRoles+imdsRole) {
		t.Errorf("it asked %q", m.asked)
	}
}

// Its error may quote the pod's token, which the provider does not see.
func TestRefusalOfPodIdentityIsNotQuoted(t *testing.T) {
	noEnvironment(t)
	s, m := newService(pki.ECDSAP256), newMachine(t)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", m.URL+podPath)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", fileOf(t, []byte(nextToken.Reveal())))
	req, _ := ask(t)
	_, err := s.opened(t, Settings{CAARN: theARN}).CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrUnavailable, theARN+": credentials: the container's service refused them: InvalidTokenException")
	mustHideTokens(t, err.Error())
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nowhere")
	mustFail(t, s.opened(t, Settings{CAARN: theARN}), ca.ErrUnavailable, "found no credentials")
}
