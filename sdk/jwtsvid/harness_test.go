package jwtsvid_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
)

const (
	web      = "spiffe://example.org/web"
	database = "database"
)

// keys are made once, as they do not matter.
var keys = sync.OnceValue(func() map[string]*ecdsa.PrivateKey {
	all := map[string]*ecdsa.PrivateKey{}
	for _, id := range []string{"a", "b", "stranger"} {
		all[id], _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	return all
})

// jwks is a set of published keys.
func jwks(ids ...string) []byte {
	var set jose.JSONWebKeySet
	for _, id := range ids {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: keys()[id].Public(), KeyID: id, Use: "jwt-svid"})
	}
	text, _ := json.Marshal(set)
	return text
}

type claimSet map[string]any

// token is signed with key and has kid in its header.
func token(t testing.TB, key, kid string, claims claimSet, header map[jose.HeaderKey]any) ca.Token {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", kid)
	for name, value := range header {
		options = options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: keys()[key]}, options)
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(claims)
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return ca.Token(text)
}

// authority signs with the key "a" by default.
type authority struct {
	t     testing.TB
	calls atomic.Int32
	last  atomic.Pointer[ca.JWTRequest]

	mu    sync.Mutex
	given []ca.Token // all that it has returned, good or bad
	sets  chan []byte
	reply func(context.Context, ca.JWTRequest) (ca.Token, error) // nil: a good token
	watch func(context.Context, func([]byte) error) error        // nil: follows sets
}

func claimsOf(req ca.JWTRequest, changes claimSet) claimSet {
	now := time.Now()
	claims := claimSet{"sub": req.SubjectID, "aud": req.Audiences, "exp": now.Add(req.TTL).Unix(), "iat": now.Unix()}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

func (a *authority) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	a.calls.Add(1)
	a.last.Store(&req)
	a.mu.Lock()
	reply := a.reply
	a.mu.Unlock()
	if reply == nil {
		return a.give(token(a.t, "a", "a", claimsOf(req, nil), nil)), nil
	}
	got, err := reply(ctx, req)
	return a.give(got), err
}

func (a *authority) give(token ca.Token) ca.Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.given = append(a.given, token)
	return token
}

// logsNone fails if the log has a token, or the signature of one, which is the secret of it.
func (a *authority) logsNone(log string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, token := range a.given {
		text := token.Reveal()
		if signature := text[strings.LastIndex(text, ".")+1:]; len(signature) > 20 && strings.Contains(log, signature) {
			a.t.Errorf("token %d of the authority is logged", i+1)
		}
	}
}

func (a *authority) WatchJWTKeys(ctx context.Context, changed func([]byte) error) error {
	a.mu.Lock()
	watch := a.watch
	a.mu.Unlock()
	if watch != nil {
		return watch(ctx, changed)
	}
	for {
		select {
		case set := <-a.sets:
			if err := changed(set); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answer has the authority do this from now on; nil is what a good one does.
func (a *authority) answer(reply func(context.Context, ca.JWTRequest) (ca.Token, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reply = reply
}

func (a *authority) fail(err error) {
	a.answer(func(context.Context, ca.JWTRequest) (ca.Token, error) { return "", err })
}

func (a *authority) publish(set []byte) {
	a.sets <- set
	synctest.Wait()
}

// inBubble runs a test with a source whose authority has published the key "a". Whatever the test is
// about, the source's log has no token.
func inBubble(t *testing.T, test func(t *testing.T, a *authority, s *jwtsvid.Source), change ...func(*jwtsvid.Config)) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{t: t, sets: make(chan []byte)}
		var log logtest.Log
		defer func() { a.logsNone(log.String()) }()
		cfg := jwtsvid.Config{Signer: a, Audiences: []string{database, "https://*"}, Log: log.Logger()}
		for _, c := range change {
			c(&cfg)
		}
		s, err := jwtsvid.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		a.publish(jwks("a"))
		test(t, a, s)
	})
}

func fetch(t *testing.T, s *jwtsvid.Source, audiences ...string) ca.Token {
	t.Helper()
	got, err := s.Fetch(t.Context(), web, audiences)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// calls fails unless the authority has been asked so often.
func (a *authority) asked(want int) {
	a.t.Helper()
	if got := int(a.calls.Load()); got != want {
		a.t.Errorf("the authority was asked %d times, want %d", got, want)
	}
}

func sorted(texts []string) []string { return slices.Sorted(slices.Values(texts)) }
