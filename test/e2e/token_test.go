package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// tokenUntil returns a token for the agent, a JWT without a signature worth the name.
func tokenUntil(name string, end time.Time) string {
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d}`, name, end.Unix())
	return "eyJhbGciOiJub25lIn0." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl"
}

// A token is replaced, expires, is removed, is not accepted, and each time heals:
// one stream, one process, and no handshake without a valid certificate.
func TestTokenFileChangesUnderRunningAgent(t *testing.T) {
	t.Parallel()
	first := tokenUntil("first", time.Now().Add(time.Hour))
	a := startAgent(t, agentConfig{token: first})
	file, accept := filepath.Join(a.dir, "token"), filepath.Join(a.dir, "accept")
	w := startWorkload(t, a.socket, "default")
	rotated := func(what string) { t.Helper(); w.awaitNext(t, what) }
	rotated("a certificate by the first token")
	if end := a.metric(t, "countersign_secret_token_expiry_timestamp_seconds", `secret="default"`); end < float64(time.Now().Unix()) {
		t.Errorf("/metrics say that the token ends at %f", end)
	}

	second := tokenUntil("second", time.Now().Add(time.Hour))
	writeWhole(t, file, []byte(second+"\n"))
	writeWhole(t, accept, []byte(second))
	rotated("a certificate by the second")

	writeWhole(t, file, []byte(tokenUntil("late", time.Now().Add(-time.Minute))))
	a.log.await(t, "cannot renew certificate", "the token expired at", "held_until=")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	a.log.await(t, "cannot renew certificate", "no such file", "held_until=")
	startWorkload(t, a.socket, "default").certificate() // who comes now is served, too
	writeWhole(t, file, []byte(second))
	rotated("a certificate after the token is back")

	third := tokenUntil("third", time.Now().Add(time.Hour))
	writeWhole(t, accept, []byte(third))
	a.log.await(t, "cannot renew certificate", "unauthenticated", "this token is not accepted")
	writeWhole(t, file, []byte(third)) // the next try is in a minute, but for that
	rotated("a certificate by the third")
	if w.streams != 1 {
		t.Errorf("the stream broke: there were %d", w.streams)
	}
}

// awaitNext waits for another certificate.
func (w *workload) awaitNext(t *testing.T, what string) {
	t.Helper()
	held := w.certificate()
	w.await(t, what, func() bool { return pki.Fingerprint(w.pair.Leaf) != pki.Fingerprint(held.Leaf) })
}

// A token is exchanged at a server and then by the provider, over the boundary; many
// requests cost one exchange, and one that is rejected costs another.
func TestTokenIsExchangedStepByStepAndCached(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"access_token":"sts-%d","issued_token_type":"urn:x","token_type":"Bearer","expires_in":3600}`, calls.Add(1))
	}))
	defer sts.Close()
	a := startAgent(t, agentConfig{
		token:    tokenUntil("subject", time.Now().Add(time.Hour)),
		exchange: []map[string]any{{"url": sts.URL, "allow_loopback_http": true, "audience": "moody"}, {"provider": true}},
	})
	accept := func(token string) { writeWhole(t, filepath.Join(a.dir, "accept"), []byte(token)) }
	w := startWorkload(t, a.socket, "default")
	w.awaitNext(t, "a second certificate")
	accept("moody-sts-1")
	w.awaitNext(t, "a third certificate, by the same token")
	if n := calls.Load(); n != 1 {
		t.Errorf("%d exchanges", n)
	}
	accept("moody-sts-2")
	w.awaitNext(t, "a certificate after the token was rejected")
	w.awaitNext(t, "another one")
	if n := calls.Load(); n != 2 {
		t.Errorf("%d exchanges after the token was rejected", n)
	}
	if n := a.metric(t, "countersign_failures_total", `reason="unauthenticated"`); n != 0 {
		t.Errorf("%f attempts failed, though the next token was good", n)
	}
}

// Another token block is taken over by a running agent: its tokens come from there, and
// nothing that was exchanged for the one before is used. What changes elsewhere leaves
// them alone.
func TestNewTokenBlockIsTakenOverWhileRunning(t *testing.T) {
	t.Parallel()
	calls := map[string]*atomic.Int64{"blue": {}, "green": {}}
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		audience := r.PostFormValue("audience")
		calls[audience].Add(1)
		fmt.Fprintf(w, `{"access_token":%q,"issued_token_type":"urn:x","token_type":"Bearer","expires_in":3600}`, audience)
	}))
	defer sts.Close()
	config := agentConfig{token: tokenUntil("plain", time.Now().Add(time.Hour))}
	a := startAgent(t, config)
	only := func(token string) { writeWhole(t, filepath.Join(a.dir, "accept"), []byte(token)) }
	exchangedFor := func(audience string) {
		config.exchange = []map[string]any{{"url": sts.URL, "allow_loopback_http": true, "audience": audience}}
		a.writeConfig(t, config)
	}
	w := startWorkload(t, a.socket, "default")
	w.awaitNext(t, "a certificate by the plain token")

	only("blue")
	exchangedFor("blue")
	w.awaitNext(t, "one by the exchanged token")
	a.log.await(t, "configuration reloaded", "providers.moody.token.exchange.0.url")
	config.secrets = []map[string]any{{"name": "more", "dns_names": []string{"more.example.org"}}}
	a.writeConfig(t, config)
	a.log.await(t, "configuration reloaded", "secrets.more")
	w.awaitNext(t, "one by the same token, as only secrets have changed")
	w.awaitNext(t, "and another")
	if n := calls["blue"].Load(); n != 1 {
		t.Errorf("%d exchanges", n)
	}

	only("green") // blue is exchanged anew, for nothing, until the block changes
	exchangedFor("green")
	w.awaitNext(t, "one by the token of another audience")
	if n := calls["green"].Load(); w.streams != 1 || n != 1 {
		t.Errorf("%d streams and %d exchanges", w.streams, n)
	}
}
