package fileca

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/sdk/ca"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ids(r ring) (all []string) {
	for _, key := range r {
		all = append(all, key.ID)
	}
	return all
}

// Whatever the pauses, a token verifies with the published keys until it ends, and a key was
// published for an hour before it signed, but for one where there was none.
func TestKeysArePublishedBeforeAndAfterTheySign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type token struct {
			key  string
			ends time.Time
		}
		var r ring
		var tokens []token
		since := map[string]time.Time{}
		now := noon
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			empty := len(r) == 0
			if empty || !now.Before(r.due()) {
				var err error
				if r, _, err = r.advance(now); err != nil {
					t.Fatal(err)
				}
			}
			alone := len(r) == 1
			for _, id := range ids(r) {
				if _, known := since[id]; !known {
					since[id] = now
				}
			}
			signer := r.signer(now)
			if published := now.Sub(since[signer.ID]); published < jwtLead && !alone {
				t.Fatalf("%s signs %s after it was published", signer.ID, published)
			}
			tokens = append(tokens, token{signer.ID, now.Add(maxJWTLife)})
			for _, token := range tokens {
				if now.Before(token.ends) && !slices.Contains(ids(r), token.key) {
					t.Fatalf("a token ends in %s, and its key is gone", token.ends.Sub(now))
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 40*60).Draw(t, "minutes")) * time.Minute)
		}
	})
}

// claimsOf verifies a token with the published keys.
func claimsOf(t *testing.T, token ca.Token, jwks []byte) (claims jwtClaims, kid string) {
	t.Helper()
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(jwks, &set); err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSignedCompact(token.Reveal(), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := signed.Verify(set)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return claims, signed.Signatures[0].Header.KeyID
}

func jwtRequest() ca.JWTRequest {
	return ca.JWTRequest{SubjectID: "spiffe://example.org/web", Audiences: []string{"database", "queue"}, TTL: 5 * time.Minute}
}

var errEnough = errors.New("enough")

func published(t *testing.T, c *CA) (jwks []byte) {
	t.Helper()
	err := c.WatchJWTKeys(t.Context(), func(set []byte) error { jwks = set; return errEnough })
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	return jwks
}

func opened(t *testing.T, settings Settings, now func() time.Time) *CA {
	t.Helper()
	c, err := open(t.Context(), settings, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestTokenHasWhatWasAskedFor(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, Settings{Dir: dir, SelfSigned: true}, time.Now)
	if _, err := os.Stat(filepath.Join(dir, jwtFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("keys are made unasked: %v", err)
	}
	token, err := c.SignJWT(t.Context(), jwtRequest())
	if err != nil {
		t.Fatal(err)
	}
	claims, _ := claimsOf(t, token, published(t, c))
	if left := time.Until(time.Unix(claims.Expiry, 0)); claims.Subject != jwtRequest().SubjectID || !slices.Equal(claims.Audience, jwtRequest().Audiences) || left > 5*time.Minute || left < 4*time.Minute {
		t.Errorf("%+v", claims)
	}
	long := jwtRequest()
	long.TTL = 100 * time.Hour
	if token, err = c.SignJWT(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	if claims, _ = claimsOf(t, token, published(t, c)); claims.Expiry-claims.IssuedAt != 3600 {
		t.Errorf("%+v", claims)
	}
	if info, err := os.Stat(filepath.Join(dir, jwtFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

func TestWrongJWTRequestIsRefused(t *testing.T) {
	c := opened(t, Settings{Dir: t.TempDir(), SelfSigned: true, TrustDomain: "example.org"}, time.Now)
	for name, test := range map[string]struct {
		change func(*ca.JWTRequest)
		want   *ca.Error
	}{
		"another trust domain": {func(r *ca.JWTRequest) { r.SubjectID = "spiffe://stranger.test/web" }, ca.ErrDenied},
		"no SPIFFE ID":         {func(r *ca.JWTRequest) { r.SubjectID = "web" }, ca.ErrInvalid},
		"no audience":          {func(r *ca.JWTRequest) { r.Audiences = nil }, ca.ErrInvalid},
		"no lifetime":          {func(r *ca.JWTRequest) { r.TTL = 0 }, ca.ErrInvalid},
	} {
		req := jwtRequest()
		test.change(&req)
		if _, err := c.SignJWT(t.Context(), req); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysRotateAndSurviveARestart(t *testing.T) {
	var clock atomic.Int64
	now := func() time.Time { return noon.Add(time.Duration(clock.Load())) }
	settings := Settings{Dir: t.TempDir(), SelfSigned: true}
	c, other := opened(t, settings, now), opened(t, settings, now)
	sign := func(c *CA) (kid string, keys []byte) {
		token, err := c.SignJWT(t.Context(), jwtRequest())
		if err != nil {
			t.Fatal(err)
		}
		keys = published(t, c)
		_, kid = claimsOf(t, token, keys)
		return kid, keys
	}
	first, keys := sign(c)
	if again, same := sign(opened(t, settings, now)); again != first || string(same) != string(keys) {
		t.Error("after a restart, the keys are others")
	}
	if _, same := sign(other); string(same) != string(keys) {
		t.Error("another process has other keys")
	}
	clock.Store(int64(23*time.Hour + time.Minute))
	kid, keys := sign(c)
	if kid != first || strings.Count(string(keys), `"kid"`) != 2 {
		t.Errorf("an hour before its end, %s signs, and %s are published", kid, keys)
	}
	clock.Store(int64(24*time.Hour + time.Minute))
	second, same := sign(other)
	if second == first || string(same) != string(keys) {
		t.Errorf("after its end, %s signs", second)
	}
	clock.Store(int64(26 * time.Hour))
	if kid, keys = sign(c); kid != second || strings.Contains(string(keys), first) {
		t.Errorf("%s signs, and the first key is still published: %s", kid, keys)
	}
}

// A key that still signs needs no folder, until it ends.
func TestKeyGoesOnSigningWhileTheFolderFails(t *testing.T) {
	var clock atomic.Int64
	dir := t.TempDir()
	c := opened(t, Settings{Dir: dir, SelfSigned: true}, func() time.Time { return noon.Add(time.Duration(clock.Load())) })
	sign := func() error {
		_, jwt := c.SignJWT(t.Context(), jwtRequest())
		_, wit := c.SignWIT(t.Context(), witRequest(t))
		return errors.Join(jwt, wit)
	}
	if err := sign(); err != nil {
		t.Fatal(err)
	}
	good := map[string][]byte{}
	for _, name := range []string{jwtFile, witFile} {
		path := filepath.Join(dir, name)
		content, err := os.ReadFile(path) //nolint:gosec // of the test
		if err = errors.Join(err, os.WriteFile(path, []byte("cut"), 0o600)); err != nil {
			t.Fatal(err)
		}
		good[path] = content
	}
	clock.Store(int64(23*time.Hour + time.Minute))
	if err := sign(); err != nil || len(published(t, c)) == 0 || len(publishedWIT(t, c)) == 0 {
		t.Errorf("an hour before the end of the keys: %v", err)
	}
	clock.Store(int64(24 * time.Hour))
	if err := sign(); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("after their end: %v", err)
	}
	for path, content := range good {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := sign(); err != nil || strings.Count(string(published(t, c)), `"kid"`) != 2 {
		t.Errorf("with the files back: %v", err)
	}
}

func TestUnfitFolderOrFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, Settings{Dir: dir, SelfSigned: true}, time.Now)
	file := filepath.Join(dir, jwtFile)
	for _, content := range []string{"", "[]", "secret-that-nobody-sees", `[{"kid":"a","key":"secret-that-nobody-sees"}]`} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.SignJWT(t.Context(), jwtRequest()); !errors.Is(err, ca.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("with %q: %v", content, err)
		}
		if got, _ := os.ReadFile(file); string(got) != content {
			t.Errorf("%q was replaced", content)
		}
	}
	if err := errors.Join(os.Remove(file), os.Chmod(dir, 0o777)); err != nil { //nolint:gosec // that is the fault
		t.Fatal(err)
	}
	if _, err := c.SignJWT(t.Context(), jwtRequest()); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "0700") {
		t.Errorf("in a folder that every user can write to: %v", err)
	}
}

func TestWatchOfKeysEndsWithTheCA(t *testing.T) {
	c := opened(t, Settings{Dir: t.TempDir(), SelfSigned: true}, time.Now)
	told, ended := make(chan []byte, 1), make(chan error, 1)
	go func() {
		ended <- c.WatchJWTKeys(t.Context(), func(set []byte) error { told <- set; return nil })
	}()
	<-told
	if err := errors.Join(c.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ca.ErrUnavailable) {
		t.Error(err)
	}
}
