package witsvid_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

const web = "spiffe://example.org/web"

var keys = sync.OnceValue(func() map[string]*ecdsa.PrivateKey {
	all := map[string]*ecdsa.PrivateKey{}
	for _, id := range []string{"a", "b", "stranger"} {
		all[id], _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	return all
})

func jwksOf(use string, ids ...string) []byte {
	var set jose.JSONWebKeySet
	for _, id := range ids {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: keys()[id].Public(), KeyID: id, Use: use})
	}
	text, _ := json.Marshal(set)
	return text
}

func jwks(ids ...string) []byte { return jwksOf("wit-svid", ids...) }

type claimSet map[string]any

// sign signs claims with a key; the type is that of the header.
func sign(t testing.TB, key any, kid, kind string, claims claimSet) ca.Token {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithType(jose.ContentType(kind)).WithHeader("kid", kid))
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
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

func claimsOf(req ca.WITRequest, changes claimSet) claimSet {
	now := time.Now()
	claims := claimSet{
		"sub": req.SubjectID, "exp": now.Add(req.TTL).Unix(), "iat": now.Unix(), "nbf": now.Unix(), "jti": req.ID,
		"cnf": map[string]any{"jwk": json.RawMessage(req.PublicKey)},
	}
	maps.Copy(claims, changes)
	return claims
}

type signWIT func(context.Context, ca.WITRequest) (ca.Token, error)

// authority signs with the key "a" by default.
type authority struct {
	t    testing.TB
	sets chan []byte

	mu    sync.Mutex
	asked []ca.WITRequest
	given []ca.Token
	reply signWIT // nil: a good WIT-SVID
	watch error   // that ends each watch
}

func (a *authority) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	a.mu.Lock()
	a.asked = append(a.asked, req)
	reply := a.reply
	a.mu.Unlock()
	if reply == nil {
		reply = func(_ context.Context, req ca.WITRequest) (ca.Token, error) {
			return sign(a.t, keys()["a"], "a", "wit+jwt", claimsOf(req, nil)), nil
		}
	}
	got, err := reply(ctx, req)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.given = append(a.given, got)
	return got, err
}

func (a *authority) WatchWITKeys(ctx context.Context, changed func([]byte) error) error {
	a.mu.Lock()
	err := a.watch
	a.mu.Unlock()
	if err != nil {
		return err
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

func (a *authority) answer(reply signWIT) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reply = reply
}

func (a *authority) breakWatch(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch = err
}

func (a *authority) calls() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked)
}

func (a *authority) wantCalls(want int) {
	a.t.Helper()
	if got := a.calls(); got != want {
		a.t.Errorf("the authority was asked %d times, want %d", got, want)
	}
}

func (a *authority) publish(set []byte) {
	a.sets <- set
	synctest.Wait()
}

// logsNone fails if the log has the signature of a WIT-SVID.
func (a *authority) logsNone(log string) {
	for i, token := range a.given {
		text := token.Reveal()
		if signature := text[strings.LastIndex(text, ".")+1:]; len(signature) > 20 && strings.Contains(log, signature) {
			a.t.Errorf("WIT-SVID %d of the authority is logged", i+1)
		}
	}
}

// inBubble runs a test with a source whose authority has published the key "a".
func inBubble(t *testing.T, test func(t *testing.T, a *authority, s *witsvid.Source)) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{t: t, sets: make(chan []byte)}
		var log logtest.Log
		defer func() { a.logsNone(log.String()) }()
		s, err := witsvid.New(witsvid.Config{Signer: a, Log: log.Logger()})
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

// follow follows a SPIFFE ID until the test ends and counts the notices.
func follow(t *testing.T, s *witsvid.Source, id string) (notices func() int, stop func()) {
	t.Helper()
	var mu sync.Mutex
	n := 0
	stop, err := s.Follow(id, func() { mu.Lock(); defer mu.Unlock(); n++ })
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return func() int { mu.Lock(); defer mu.Unlock(); return n }, stop
}

func held(t *testing.T, s *witsvid.Source, id string) (ca.Token, []byte, time.Time) {
	t.Helper()
	wit, key, ends, err := s.Held(id)
	if err != nil {
		t.Fatal(err)
	}
	return wit, key, ends
}
