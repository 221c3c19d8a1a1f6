package acmeca

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const host = "https://ca.example"

// fake is an ACME server in memory. It holds requests to the letter of RFC 8555, where Pebble is
// lax, and answers as a test bends it. It is also the answerer whose proofs it looks at.
type fake struct {
	t  *testing.T
	ca *catest.CA

	mu       sync.Mutex
	nonces   map[string]bool
	accounts map[string]jose.JSONWebKey // by URL
	orders   []*fakeOrder
	proofs   map[string]string // by token
	unproved string            // the problem's kind if a proof is wrong
	asked    []string          // paths
	replaces []string

	// fault answers in the place of the server, unless it returns nil.
	fault func(path string) *http.Response
	// bend changes an answer before it is sent.
	bend func(path string, body map[string]any)
	// never keeps authorizations pending.
	never bool
	// takes is how long they stay so otherwise.
	takes time.Duration
	// sign is what a certificate is made of, from the CSR in PEM.
	sign func(csr []byte) []byte
	word string // Retry-After of pending things
	csr  []byte // PEM, for late
}

type fakeOrder struct {
	names  []name
	proved bool
	tried  bool
	proves time.Time
	csr    []byte
	chain  []byte
	given  []int // authorizations that were deactivated
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, ca: catest.NewCA(catest.Options{Intermediates: 1}), nonces: map[string]bool{}, accounts: map[string]jose.JSONWebKey{}, proofs: map[string]string{}, unproved: "incorrectResponse"}
	f.sign = func(csr []byte) []byte {
		reply, err := f.ca.CSRSign(t.Context(), ca.SignRequest{CSR: csr})
		must(t, err)
		return reply.Chain
	}
	return f
}

func (f *fake) settings(t *testing.T) Settings {
	url, err := setting.ParseURL(host + "/dir")
	must(t, err)
	return Settings{URL: url, StateDir: filepath.Join(t.TempDir(), "acme"), Roots: setting.Certificates(f.ca.Bundle().PEM())}
}

// open opens a CA that speaks to the fake.
func (f *fake) open(t *testing.T, settings Settings) *CA {
	t.Helper()
	settings.Log = slog.New(slog.DiscardHandler)
	c, err := Open(settings)
	must(t, err)
	c.server.client, c.answers = f, f
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// seen returns how many requests went to paths that begin so.
func (f *fake) seen(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range f.asked {
		if strings.HasPrefix(path, prefix) {
			n++
		}
	}
	return n
}

func (f *fake) present(_ context.Context, c challenge) (func(context.Context) error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proofs[c.token] = c.proof
	return func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.proofs, c.token)
		return nil
	}, nil
}

func (*fake) settle(context.Context) error { return nil }

// RoundTrip implements [http.RoundTripper].
func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path := req.URL.Path
	f.asked = append(f.asked, path)
	if got := req.URL.Scheme + "://" + req.URL.Host; got != host {
		f.t.Errorf("a request went to %s", got)
	}
	if f.fault != nil {
		if resp := f.fault(path); resp != nil {
			return f.nonced(resp), nil
		}
	}
	resp := f.answer(req, path)
	if path == "/dir" { // section 7.2: nonces are for who asks for them
		return resp, nil
	}
	return f.nonced(resp), nil
}

// nonced adds a nonce to an answer.
func (f *fake) nonced(resp *http.Response) *http.Response {
	nonce := fmt.Sprintf("nonce%d", len(f.nonces))
	f.nonces[nonce] = true
	resp.Header.Set("Replay-Nonce", nonce)
	return resp
}

func response(status int, body any, header ...string) *http.Response {
	text, isText := body.([]byte)
	if !isText {
		text, _ = json.Marshal(body)
	}
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text))}
	for i := 0; i+1 < len(header); i += 2 {
		resp.Header.Add(header[i], header[i+1])
	}
	return resp
}

// refusal is a problem document.
func refusal(status int, kind string, header ...string) *http.Response {
	return response(status, map[string]any{"type": namespace + kind, "detail": "because", "status": status}, header...)
}

func (f *fake) bent(status int, path string, body map[string]any, header ...string) *http.Response {
	if f.bend != nil {
		f.bend(path, body)
	}
	if told, ok := body["location"].(string); ok {
		header = append(header, "Location", told)
	}
	return response(status, body, header...)
}

func (f *fake) answer(req *http.Request, path string) *http.Response {
	switch {
	case path == "/dir":
		return f.bent(200, path, map[string]any{
			"newNonce": host + "/nonce", "newAccount": host + "/account", "newOrder": host + "/order", "keyChange": host + "/key", "renewalInfo": host + "/ari",
		})
	case path == "/nonce" && req.Method == http.MethodHead:
		return response(200, []byte{})
	case strings.HasPrefix(path, "/ari/"):
		return f.bent(200, path, map[string]any{"suggestedWindow": map[string]string{"start": "2100-01-01T00:00:00Z", "end": "2100-01-02T00:00:00Z"}})
	}
	key, kid, payload, why := f.opened(req)
	if why != "" {
		if why == "badNonce" || why == "accountDoesNotExist" {
			return refusal(400, why)
		}
		f.t.Errorf("%s %s: %s", req.Method, path, why)
		return refusal(400, "malformed")
	}
	switch path {
	case "/account":
		return f.account(key, payload)
	case "/key":
		return f.keyChange(kid, payload)
	case "/order":
		return f.newOrder(path, payload)
	}
	return f.resource(path, key, payload)
}

// opened verifies a signed request.
func (f *fake) opened(req *http.Request) (key jose.JSONWebKey, kid string, payload []byte, why string) {
	body, _ := io.ReadAll(req.Body)
	if req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/jose+json" || req.Header.Get("User-Agent") == "" {
		return key, "", nil, "want a POST of application/jose+json with a User-Agent"
	}
	message, err := jose.ParseSigned(string(body), []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.RS256})
	if err != nil {
		return key, "", nil, err.Error()
	}
	header := message.Signatures[0].Protected
	embedded := header.JSONWebKey
	switch {
	case header.ExtraHeaders["url"] != req.URL.String():
		return key, "", nil, fmt.Sprintf("the header url is %v", header.ExtraHeaders["url"])
	case (embedded != nil) == (header.KeyID != ""):
		return key, "", nil, "it has both kid and jwk, or neither"
	case (embedded != nil) != (req.URL.Path == "/account"):
		return key, "", nil, "jwk is for new accounts alone"
	case !f.nonces[header.Nonce]:
		return key, "", nil, "badNonce"
	}
	f.nonces[header.Nonce] = false
	if embedded != nil {
		key = *embedded
	} else if key, kid = f.accounts[header.KeyID], header.KeyID; key.Key == nil {
		return key, "", nil, "accountDoesNotExist"
	}
	if payload, err = message.Verify(key); err != nil {
		return key, "", nil, err.Error()
	}
	return key, kid, payload, ""
}

func printOf(key jose.JSONWebKey) string {
	sum, _ := key.Thumbprint(crypto.SHA256)
	return base64.RawURLEncoding.EncodeToString(sum)
}

func (f *fake) account(key jose.JSONWebKey, payload []byte) *http.Response {
	for url, known := range f.accounts {
		if printOf(known) == printOf(key) {
			return response(200, map[string]any{"status": "valid"}, "Location", url)
		}
	}
	if strings.Contains(string(payload), `"onlyReturnExisting":true`) {
		return refusal(400, "accountDoesNotExist")
	}
	url := fmt.Sprintf("%s/accounts/%d", host, len(f.asked))
	f.accounts[url] = key
	return f.bent(201, "/account", map[string]any{"status": "valid", "location": url})
}

func (f *fake) keyChange(kid string, payload []byte) *http.Response {
	inner, err := jose.ParseSigned(string(payload), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return refusal(400, "malformed")
	}
	header := inner.Signatures[0].Protected
	_, err = inner.Verify(header.JSONWebKey)
	if err != nil || header.Nonce != "" || header.ExtraHeaders["url"] != host+"/key" {
		f.t.Errorf("a change of keys: %v, %+v", err, header)
		return refusal(400, "malformed")
	}
	f.accounts[kid] = *header.JSONWebKey
	return response(200, map[string]any{})
}

func (f *fake) newOrder(path string, payload []byte) *http.Response {
	var request newOrderRequest
	if json.Unmarshal(payload, &request) != nil || len(request.Identifiers) == 0 {
		return refusal(400, "malformed")
	}
	f.orders = append(f.orders, &fakeOrder{names: request.Identifiers})
	f.replaces = append(f.replaces, request.Replaces)
	return f.order(path, len(f.orders)-1, 201)
}

func (f *fake) order(path string, n, status int) *http.Response {
	o := f.orders[n]
	body := map[string]any{"identifiers": o.names, "finalize": fmt.Sprintf("%s/fin/%d", host, n), "location": fmt.Sprintf("%s/order/%d", host, n), "status": "pending"}
	var urls []string
	for i := range o.names {
		urls = append(urls, fmt.Sprintf("%s/authz/%d/%d", host, n, i))
	}
	body["authorizations"] = urls
	switch {
	case o.chain != nil:
		body["status"], body["certificate"] = "valid", fmt.Sprintf("%s/cert/%d", host, n)
	case o.proved:
		body["status"] = "ready"
	}
	return f.bent(status, path, body)
}

// resource answers all that has a number.
func (f *fake) resource(path string, key jose.JSONWebKey, payload []byte) *http.Response {
	var n, i int
	kind, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if fmt.Sscanf(strings.ReplaceAll(rest, "/", " ")+" 0", "%d %d", &n, &i); n >= len(f.orders) {
		return refusal(404, "malformed")
	}
	o := f.orders[n]
	if kind == "authz" && string(payload) == `{"status":"deactivated"}` {
		o.given = append(o.given, i)
		payload = nil
	}
	if (kind == "order" || kind == "authz" || kind == "cert") != (len(payload) == 0) {
		f.t.Errorf("%s with the payload %q", path, payload)
	}
	switch kind {
	case "order":
		return f.order(path, n, 200)
	case "authz":
		return f.authz(path, n, i)
	case "chall":
		o.tried = true
		o.proved = f.proofs[tokenOf(n, i)] == tokenOf(n, i)+"."+printOf(key)
		o.proves = time.Now().Add(f.takes)
		if f.never || f.takes > 0 {
			return response(200, map[string]any{"status": "processing"})
		}
		return response(200, map[string]any{"status": "valid"})
	case "fin":
		if !o.proved || o.chain != nil {
			return refusal(403, "orderNotReady")
		}
		var said struct{ CSR string }
		_ = json.Unmarshal(payload, &said)
		o.csr, _ = base64.RawURLEncoding.DecodeString(said.CSR)
		o.chain = f.sign(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: o.csr}))
		return f.order(path, n, 200)
	case "cert":
		return response(200, o.chain)
	}
	return refusal(404, "malformed")
}

// late makes the certificate although the answer to that gets lost.
func (f *fake) late(o *fakeOrder) error {
	if o.chain = f.sign(f.csr); o.chain == nil {
		return fmt.Errorf("nothing was signed")
	}
	return nil
}

func tokenOf(n, i int) string { return hex.EncodeToString(fmt.Appendf(nil, "token-%05d-%05d", n, i)) }

func (f *fake) authz(path string, n, i int) *http.Response {
	o := f.orders[n]
	challenge := map[string]any{"type": HTTP01, "url": fmt.Sprintf("%s/chall/%d/%d", host, n, i), "status": "pending", "token": tokenOf(n, i)}
	body := map[string]any{"identifier": o.names[i], "status": "pending", "challenges": []any{challenge}}
	switch {
	case f.never || !o.tried || time.Now().Before(o.proves):
	case o.proved:
		body["status"] = "valid"
	default:
		body["status"] = "invalid"
		challenge["error"] = map[string]any{"type": namespace + f.unproved, "detail": "another text"}
	}
	if f.word != "" {
		return f.bent(200, path, body, "Retry-After", f.word)
	}
	return f.bent(200, path, body)
}

// nested returns the maps in an answer, to bend.
func nested(body map[string]any, list string) []map[string]any {
	var all []map[string]any
	for _, one := range body[list].([]any) {
		all = append(all, maps.Clone(one.(map[string]any)))
	}
	return all
}
