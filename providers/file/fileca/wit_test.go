package fileca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// proofJWK returns a workload's key as a JWK, the private one if private is set.
func proofJWK(t *testing.T, private bool) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	jwk := jose.JSONWebKey{Key: key, Algorithm: "ES256"}
	if !private {
		jwk = jwk.Public()
	}
	text, err := jwk.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func witRequest(t *testing.T) ca.WITRequest {
	t.Helper()
	return ca.WITRequest{
		ID: "7b3bd6a1-4b5d-4a8e-9a3e-0c7d2f1e9b10", SubjectID: "spiffe://example.org/web",
		PublicKey: proofJWK(t, false), TTL: 5 * time.Minute,
	}
}

func publishedWIT(t *testing.T, c *CA) (jwks []byte) {
	t.Helper()
	err := c.WatchWITKeys(t.Context(), func(set []byte) error { jwks = set; return errEnough })
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	return jwks
}

func TestWITHasWhatTheStandardAsksFor(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, Settings{Dir: dir, SelfSigned: true}, time.Now)
	req := witRequest(t)
	token, err := c.SignWIT(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSignedCompact(token.Reveal(), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	header := signed.Signatures[0].Header
	if header.ExtraHeaders[jose.HeaderType] != "wit+jwt" || header.KeyID == "" || len(header.ExtraHeaders) != 1 {
		t.Errorf("header %+v", header)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(publishedWIT(t, c), &set); err != nil || set.Keys[0].Use != "wit-svid" {
		t.Fatalf("%+v, %v", set, err)
	}
	payload, err := signed.Verify(set)
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]json.RawMessage
	var known witClaims
	if err := errors.Join(json.Unmarshal(payload, &claims), json.Unmarshal(payload, &known)); err != nil {
		t.Fatal(err)
	}
	if known.Subject != req.SubjectID || known.Expiry-known.IssuedAt != 300 || known.NotBefore != known.IssuedAt || known.ID == "" || claims["aud"] != nil || claims["iss"] != nil {
		t.Errorf("%s", payload)
	}
	if want := `{"jwk":` + string(req.PublicKey) + `}`; string(claims["cnf"]) != want {
		t.Errorf("cnf is %s, want %s", claims["cnf"], want)
	}
	if info, err := os.Stat(filepath.Join(dir, witFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

// One key for both kinds, or one kid, would have a token of one kind verify as one of the other.
func TestWITAndJWTKeysAreSeparate(t *testing.T) {
	c := opened(t, Settings{Dir: t.TempDir(), SelfSigned: true}, time.Now)
	var jwts, wits jose.JSONWebKeySet
	if err := errors.Join(json.Unmarshal(published(t, c), &jwts), json.Unmarshal(publishedWIT(t, c), &wits)); err != nil {
		t.Fatal(err)
	}
	for _, key := range wits.Keys {
		if len(jwts.Key(key.KeyID)) != 0 {
			t.Errorf("%s is a key of both", key.KeyID)
		}
	}
	token, err := c.SignWIT(t.Context(), witRequest(t))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSignedCompact(token.Reveal(), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range jwts.Keys {
		if _, err := signed.Verify(key); err == nil {
			t.Error("a WIT-SVID verifies with a key of JWT-SVIDs")
		}
	}
}

func TestWrongWITRequestIsRefused(t *testing.T) {
	c := opened(t, Settings{Dir: t.TempDir(), SelfSigned: true, TrustDomain: "example.org"}, time.Now)
	for name, test := range map[string]struct {
		change func(*ca.WITRequest)
		want   *ca.Error
	}{
		"another trust domain": {func(r *ca.WITRequest) { r.SubjectID = "spiffe://stranger.test/web" }, ca.ErrDenied},
		"no SPIFFE ID":         {func(r *ca.WITRequest) { r.SubjectID = "spiffe://" }, ca.ErrInvalid},
		"short life":           {func(r *ca.WITRequest) { r.TTL = time.Millisecond }, ca.ErrInvalid},
		"no key":               {func(r *ca.WITRequest) { r.PublicKey = nil }, ca.ErrInvalid},
		"private key":          {func(r *ca.WITRequest) { r.PublicKey = proofJWK(t, true) }, ca.ErrInvalid},
	} {
		req := witRequest(t)
		test.change(&req)
		if _, err := c.SignWIT(t.Context(), req); !errors.Is(err, test.want) || strings.Contains(err.Error(), string(req.PublicKey)) && len(req.PublicKey) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWITKeysRotate(t *testing.T) {
	now := noon
	c := opened(t, Settings{Dir: t.TempDir(), SelfSigned: true}, func() time.Time { return now })
	first := publishedWIT(t, c)
	now = noon.Add(23*time.Hour + time.Minute)
	if next := publishedWIT(t, c); strings.Count(string(next), `"kid"`) != 2 || string(next) == string(first) {
		t.Errorf("an hour before the end of the first key, %s are published", next)
	}
}
