package istioca_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/oidctest"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/authn/jwt"
	"github.com/countersign-dev/countersign/sdk/authn/tokenreview"
)

// cluster is an API server that reviews tokens, below a real reviewer.
type cluster struct {
	mu     sync.Mutex
	tokens map[string]review
	away   bool
	asked  int
	made   *tokenreview.Reviewer
}

// review is what the API server answers about a token.
type review struct {
	user, pod, uid, node string
	audience             string
	expired, groupless   bool
}

func newCluster() *cluster { return &cluster{tokens: map[string]review{}} }

// account adds a token of a service account, for istio-ca.
func (c *cluster) account(token, namespace, name, pod, node string) {
	c.tokens[token] = review{user: "system:serviceaccount:" + namespace + ":" + name, pod: pod, uid: "uid-" + pod, node: node, audience: "istio-ca"}
}

func (c *cluster) reviewer(t *testing.T, id string) authn.Authenticator {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		var err error
		if c.made, err = tokenreview.New(tokenreview.Config{URL: "https://api." + id + ".test", Transport: c, Audiences: []string{"istio-ca"}, Cluster: id}); err != nil {
			t.Error(err)
		}
	}
	return c.made
}

func (c *cluster) close() {
	if c.made != nil {
		c.made.Close()
	}
}

// RoundTrip implements [http.RoundTripper]: it is the API server.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	var q struct {
		Spec struct{ Token string } `json:"spec"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	if c.away {
		return nil, errors.New("connection refused")
	}
	return reply(c.review(q.Spec.Token))
}

func (c *cluster) review(token string) map[string]any {
	known, ok := c.tokens[token]
	if !ok || known.expired {
		return map[string]any{"authenticated": false, "error": "invalid bearer token"}
	}
	namespace, _, _ := strings.Cut(strings.TrimPrefix(known.user, "system:serviceaccount:"), ":")
	user := map[string]any{"username": known.user, "uid": "uid-of-account", "groups": []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}}
	if known.groupless {
		user["groups"] = []string{"system:authenticated"}
	}
	extra := map[string][]string{}
	for key, value := range map[string]string{"pod-name": known.pod, "pod-uid": known.uid, "node-name": known.node} {
		if value != "" && known.pod != "" {
			extra["authentication.kubernetes.io/"+key] = []string{value}
		}
	}
	user["extra"] = extra
	return map[string]any{"authenticated": true, "audiences": []string{known.audience}, "user": user}
}

func reply(status map[string]any) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status})
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// pod is a pod as its API server has it.
type pod struct {
	cluster, namespace, name, uid, account, node string
	finished                                     bool
}

// pods implements [istioca.Pods] over a table.
type pods struct {
	mu    sync.Mutex
	all   []pod
	away  error
	asked int
}

func newPods() *pods { return &pods{} }

func (p *pods) add(all ...pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, all...)
}

// finish ends all pods of a service account.
func (p *pods) finish(account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.all {
		p.all[i].finished = p.all[i].finished || p.all[i].account == account
	}
}

func (p *pods) find(is func(pod) bool) (pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.away != nil {
		return pod{}, p.away
	}
	for _, each := range p.all {
		if !each.finished && is(each) {
			return each, nil
		}
	}
	return pod{}, istioca.ErrNoPod
}

// Alive implements [istioca.Pods].
func (p *pods) Alive(_ context.Context, of istioca.Pod) (string, error) {
	found, err := p.find(func(each pod) bool {
		return each.name == of.Name && each.uid == of.UID && of.Account == each.of()
	})
	return found.node, err
}

// Runs implements [istioca.Pods].
func (p *pods) Runs(_ context.Context, account istioca.Account, node string) error {
	_, err := p.find(func(each pod) bool { return each.of() == account && each.node == node })
	return err
}

func (p pod) of() istioca.Account {
	return istioca.Account{Cluster: p.cluster, Namespace: p.namespace, ServiceAccount: p.account}
}

// issuer is an OIDC issuer with its keys in a file, below a real verifier.
type issuer struct {
	*oidctest.Issuer
	verifier *jwt.Verifier
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{Issuer: oidctest.New(t, "https://issuer.test")}
	keys := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(keys, i.JWKS(), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	i.verifier, err = jwt.New(jwt.Config{
		Issuer: i.URL, Audiences: []string{"istio-ca"}, JWKSFile: keys, TrustDomain: "vm.example.org", Log: slog.New(slog.DiscardHandler),
		ServiceAccounts: "spiffe://vm.example.org/ns/{namespace}/sa/{service_account}",
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// token signs claims; change may alter them, and by the header.
func (i *issuer) token(t *testing.T, subject string, change func(header, claims map[string]any)) string {
	t.Helper()
	return i.Token(t, subject, "istio-ca", time.Hour, change)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
