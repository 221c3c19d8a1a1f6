package witsvid_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

const service = "https://service.example.org/path"

// witOf returns a WIT-SVID that is bound to the key "b" and signed by "a".
func witOf(t testing.TB, id string, changes claimSet) (wit ca.Token, key []byte) {
	t.Helper()
	key, _ = json.Marshal(jose.JSONWebKey{Key: keys()["b"], Algorithm: "ES256"})
	public, _ := json.Marshal(jose.JSONWebKey{Key: keys()["b"].Public(), Algorithm: "ES256"})
	return sign(t, keys()["a"], "a", "wit+jwt", claimsOf(ca.WITRequest{SubjectID: id, PublicKey: public, TTL: time.Hour}, changes)), key
}

func proofOf(wit ca.Token, changes claimSet) claimSet {
	sum := sha256.Sum256([]byte(wit.Reveal()))
	claims := claimSet{"aud": service, "exp": time.Now().Add(time.Minute).Unix(), "jti": "one", "wth": base64.RawURLEncoding.EncodeToString(sum[:])}
	maps.Copy(claims, changes)
	return claims
}

func newVerifier(t *testing.T, cfg witsvid.VerifierConfig) *witsvid.Verifier {
	t.Helper()
	v, err := witsvid.NewVerifier(cfg)
	if err == nil {
		err = v.SetKeys("example.org", jwks("a"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func prove(t *testing.T, wit ca.Token, key []byte) ca.Token {
	t.Helper()
	proof, err := witsvid.Prove(wit, key, service, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

func TestProofIsAcceptedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVerifier(t, witsvid.VerifierConfig{})
		wit, key := witOf(t, web, nil)
		proof := prove(t, wit, key)
		got, err := v.Verify(wit, proof, service)
		if want := (witsvid.Identity{ID: web, Ends: time.Now().Add(time.Hour)}); err != nil || got.ID != want.ID || !got.Ends.Equal(want.Ends) {
			t.Errorf("%+v, %v", got, err)
		}
		for range 89 { // it ends after a minute, and 30 seconds are tolerated
			if _, err := v.Verify(wit, proof, service); err == nil || !strings.Contains(err.Error(), "used before") {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if _, err := v.Verify(wit, prove(t, wit, key), service); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedWITSVIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVerifier(t, witsvid.VerifierConfig{})
		good, _ := witOf(t, web, nil)
		payload := strings.Split(good.Reveal(), ".")
		private, _ := json.Marshal(jose.JSONWebKey{Key: keys()["b"], Algorithm: "ES256"})
		for name, wit := range map[string]ca.Token{
			"nothing":           "",
			"too long":          ca.Token(strings.Repeat("a", 17<<10)),
			"a line break":      good[:10] + "\n" + good[10:],
			"none":              ca.Token(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"wit+jwt","kid":"a"}`)) + "." + payload[1] + "."),
			"a JWT-SVID's type": sign(t, keys()["a"], "a", "JWT", proofOf(good, claimSet{"sub": web})),
			"no kid":            sign(t, keys()["a"], "", "wit+jwt", claimsOf(ca.WITRequest{SubjectID: web, TTL: time.Hour}, nil)),
			"another key":       sign(t, keys()["b"], "a", "wit+jwt", claimsOf(ca.WITRequest{SubjectID: web, TTL: time.Hour}, nil)),
			"expired":           tokenOf(witOf(t, web, claimSet{"exp": time.Now().Unix()})),
			"an audience":       tokenOf(witOf(t, web, claimSet{"aud": service})),
			"no key":            tokenOf(witOf(t, web, claimSet{"cnf": nil})),
			"a private key":     tokenOf(witOf(t, web, claimSet{"cnf": map[string]any{"jwk": json.RawMessage(private)}})),
			"no SPIFFE ID":      tokenOf(witOf(t, "spiffe://example.org/../web", nil)),
		} {
			proof := sign(t, keys()["b"], "", "wpt+jwt", proofOf(wit, claimSet{"jti": name}))
			if _, err := v.Verify(wit, proof, service); !errors.Is(err, ca.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		other, _ := witOf(t, "spiffe://example.com/web", nil)
		if _, err := v.Verify(other, sign(t, keys()["b"], "", "wpt+jwt", proofOf(other, nil)), service); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("of an unknown trust domain: %v", err)
		}
	})
}

func tokenOf(token ca.Token, _ []byte) ca.Token { return token }

func TestRefusedProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVerifier(t, witsvid.VerifierConfig{})
		wit, _ := witOf(t, web, nil)
		other, _ := witOf(t, web, claimSet{"jti": "other"})
		of := func(key, kind string, changes claimSet) ca.Token {
			return sign(t, keys()[key], "", kind, proofOf(wit, changes))
		}
		now := time.Now()
		for name, proof := range map[string]ca.Token{
			"nothing":          "",
			"the WIT itself":   wit,
			"another key":      of("stranger", "wpt+jwt", nil),
			"its signer's key": of("a", "wpt+jwt", nil),
			"another type":     of("b", "JWT", nil),
			"a DPoP type":      of("b", "dpop+jwt", nil),
			"another audience": of("b", "wpt+jwt", claimSet{"aud": service + "/other"}),
			"two audiences":    of("b", "wpt+jwt", claimSet{"aud": []string{service, "https://other.example.org"}}),
			"no audience":      of("b", "wpt+jwt", claimSet{"aud": nil}),
			"another WIT":      sign(t, keys()["b"], "", "wpt+jwt", proofOf(other, nil)),
			"no hash":          of("b", "wpt+jwt", claimSet{"wth": nil}),
			"no expiry":        of("b", "wpt+jwt", claimSet{"exp": nil}),
			"expired":          of("b", "wpt+jwt", claimSet{"exp": now.Add(-30 * time.Second).Unix()}),
			"too far ahead":    of("b", "wpt+jwt", claimSet{"exp": now.Add(5*time.Minute + 31*time.Second).Unix()}),
			"issued later":     of("b", "wpt+jwt", claimSet{"iat": now.Add(31 * time.Second).Unix()}),
			"no ID":            of("b", "wpt+jwt", claimSet{"jti": nil}),
			"a long ID":        of("b", "wpt+jwt", claimSet{"jti": strings.Repeat("a", 257)}),
			"a transaction":    of("b", "wpt+jwt", claimSet{"tth": "hash"}),
			"another token":    of("b", "wpt+jwt", claimSet{"oth": map[string]string{"x-token": "hash"}}),
		} {
			if _, err := v.Verify(wit, proof, service); !errors.Is(err, ca.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := v.Verify(wit, of("b", "wpt+jwt", nil), service); err != nil {
			t.Error(err)
		}
	})
}

func TestProofHasTheAlgorithmOfTheConfirmedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVerifier(t, witsvid.VerifierConfig{})
		public, _ := json.Marshal(jose.JSONWebKey{Key: keys()["b"].Public(), Algorithm: "ES384"})
		wit, _ := witOf(t, web, claimSet{"cnf": map[string]any{"jwk": json.RawMessage(public)}})
		if _, err := v.Verify(wit, sign(t, keys()["b"], "", "wpt+jwt", proofOf(wit, nil)), service); !errors.Is(err, ca.ErrInvalid) {
			t.Error(err)
		}
	})
}

func TestClocksMayDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wit, key := witOf(t, web, nil)
		for _, test := range []struct {
			ahead time.Duration
			good  bool
		}{{89 * time.Second, true}, {91 * time.Second, false}, {-29 * time.Second, true}} {
			v := newVerifier(t, witsvid.VerifierConfig{MaxAhead: time.Minute, Now: func() time.Time { return time.Now().Add(test.ahead) }})
			if _, err := v.Verify(wit, prove(t, wit, key), service); (err == nil) != test.good {
				t.Errorf("a clock that is %s ahead: %v", test.ahead, err)
			}
		}
	})
}

func TestClockThatIsSetForwardAndBackForgetsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		v := newVerifier(t, witsvid.VerifierConfig{Now: func() time.Time { return time.Now().Add(ahead) }})
		wit, key := witOf(t, web, nil)
		proof := prove(t, wit, key)
		if _, err := v.Verify(wit, proof, service); err != nil {
			t.Fatal(err)
		}
		ahead = 30 * time.Minute
		later, _ := witsvid.Prove(wit, key, service, time.Now().Add(ahead))
		if _, err := v.Verify(wit, later, service); err != nil {
			t.Fatal(err)
		}
		ahead = 0
		if _, err := v.Verify(wit, proof, service); err == nil {
			t.Error("the proof is accepted again")
		}
	})
}

// A clock that was ahead for long is set back to a time at which a forgotten proof is good.
func TestClockThatIsSetBackMakesNoForgottenProofGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		v := newVerifier(t, witsvid.VerifierConfig{Now: func() time.Time { return time.Now().Add(ahead) }})
		wit, key := witOf(t, web, nil)
		proof := prove(t, wit, key)
		verify := func(proof ca.Token) error { _, err := v.Verify(wit, proof, service); return err }
		if err := verify(proof); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if err := verify(prove(t, wit, key)); err != nil { // which has the first one forgotten
			t.Fatal(err)
		}
		ahead = -100 * time.Second
		if err := verify(proof); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("the forgotten proof: %v", err)
		}
		if err := verify(prove(t, wit, key)); err != nil {
			t.Errorf("a new proof: %v", err)
		}
	})
}

// What was accepted while the clock was ahead must not keep the places of proofs that end.
func TestProofsOfAClockThatWasAheadBlockNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := 24 * time.Hour
		v := newVerifier(t, witsvid.VerifierConfig{Now: func() time.Time { return time.Now().Add(ahead) }})
		v.BoundReplays("example.org", 4, 0)
		wit, key := witOf(t, web, claimSet{"exp": time.Now().Add(48 * time.Hour).Unix()})
		early, err := witsvid.Prove(wit, key, service, time.Now().Add(ahead))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(wit, early, service); err != nil {
			t.Fatal(err)
		}
		ahead = 0
		for i := range 8 {
			if _, err := v.Verify(wit, prove(t, wit, key), service); err != nil {
				t.Fatalf("proof %d after the clock was set back: %v", i+1, err)
			}
			time.Sleep(2 * time.Minute)
		}
		time.Sleep(24*time.Hour - 16*time.Minute)
		if _, err := v.Verify(wit, early, service); err == nil {
			t.Error("the early proof is accepted again")
		}
	})
}

// A sender that floods is refused alone, and no proof of it is forgotten.
func TestSenderFillsNoOthersMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVerifier(t, witsvid.VerifierConfig{})
		if got := v.BoundReplays("example.org", 8, 64); got != [2]int{256, 65536} {
			t.Errorf("a sender has %d places, and all share %d", got[0], got[1])
		}
		flood, _ := witOf(t, "spiffe://example.org/flood", nil)
		send := func(jti string) error {
			_, err := v.Verify(flood, sign(t, keys()["b"], "", "wpt+jwt", proofOf(flood, claimSet{"jti": jti})), service)
			return err
		}
		if err := send("first"); err != nil {
			t.Fatal(err)
		}
		if taken := v.FillReplays("example.org", "spiffe://example.org/flood"); taken != 7+32 { // half of those that are left
			t.Errorf("the sender has %d places more", taken)
		}
		if err := send("more"); !errors.Is(err, ca.ErrRateLimited) {
			t.Error(err)
		}
		if err := send("first"); !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("an old proof again: %v", err)
		}
		wit, key := witOf(t, web, nil)
		for range 8 {
			if _, err := v.Verify(wit, prove(t, wit, key), service); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * time.Minute)
		if err := send("later"); err != nil {
			t.Error(err)
		}
	})
}

func TestSendersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVerifier(t, witsvid.VerifierConfig{})
		early, key := witOf(t, "spiffe://example.org/early", nil)
		late, _ := witOf(t, "spiffe://example.org/late", nil)
		send := func(wit ca.Token) error {
			_, err := v.Verify(wit, prove(t, wit, key), service)
			return err
		}
		if err := send(early); err != nil {
			t.Fatal(err)
		}
		if n := v.FillSenders("example.org"); n != 1023 {
			t.Errorf("%d senders more are remembered", n)
		}
		if err := send(late); !errors.Is(err, ca.ErrRateLimited) {
			t.Errorf("one sender too many: %v", err)
		}
		if err := send(early); err != nil {
			t.Errorf("a sender that is remembered: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := send(late); err != nil {
			t.Errorf("after the proofs of the others have ended: %v", err)
		}
	})
}

func TestRevokedKeysVerifyNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVerifier(t, witsvid.VerifierConfig{})
		wit, key := witOf(t, web, nil)
		if err := v.SetKeys("example.org", jwksOf("jwt-svid", "a")); err == nil {
			t.Error("a JWT bundle is accepted")
		}
		if err := v.SetKeys("example.org", []byte("{ \"keys\": [ ] }\n")); err != nil {
			t.Fatal(err)
		}
		for _, none := range []string{"{}", "null", `{"keys":null}`} {
			if err := v.SetKeys("example.org", []byte(none)); err == nil {
				t.Errorf("%s is a JWK set", none)
			}
		}
		if _, err := v.Verify(wit, prove(t, wit, key), service); !errors.Is(err, ca.ErrInvalid) {
			t.Error(err)
		}
	})
}

func TestErrorsQuoteNoToken(t *testing.T) {
	wit, key := witOf(t, web, nil)
	v := newVerifier(t, witsvid.VerifierConfig{})
	if err := v.SetKeys("example.org", jwks("b")); err != nil {
		t.Fatal(err)
	}
	proof := prove(t, wit, key)
	_, err := v.Verify(wit, proof, service)
	_, failed := witsvid.Prove(wit, key[:20], service, time.Now())
	for _, text := range []string{fmt.Sprint(err), fmt.Sprint(failed)} {
		if text == "<nil>" || strings.Contains(text, wit.Reveal()) || strings.Contains(text, proof.Reveal()) || strings.Contains(text, string(key[10:20])) {
			t.Error(text)
		}
	}
}

func TestForeignKeyProvesNothing(t *testing.T) {
	wit, key := witOf(t, web, nil)
	stranger, _ := json.Marshal(jose.JSONWebKey{Key: keys()["stranger"], Algorithm: "ES256"})
	public, _ := json.Marshal(jose.JSONWebKey{Key: keys()["b"].Public(), Algorithm: "ES256"})
	for name, key := range map[string][]byte{"stranger": stranger, "public": public, "none": nil, "good": key} {
		if _, err := witsvid.Prove(wit, key, service, time.Now()); (err == nil) != (name == "good") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := witsvid.Prove(wit, key, "", time.Now()); err == nil {
		t.Error("no audience")
	}
}

// A JWT-SVID verifier never accepts a WIT-SVID or takes its keys.
func TestWITSVIDIsNoJWTSVID(t *testing.T) {
	var foreign jwtsvid.Foreign
	if err := foreign.Set("example.org", jwks("a")); err == nil {
		t.Error("the keys of WIT-SVIDs are those of JWT-SVIDs")
	}
	if err := foreign.Set("example.org", jwksOf("jwt-svid", "a")); err != nil {
		t.Fatal(err)
	}
	wit, _ := witOf(t, web, claimSet{"aud": service})
	if _, _, err := foreign.Validate(wit, service, "example.org"); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "wit+jwt") {
		t.Error(err)
	}
	mixed := strings.Replace(string(jwksOf("jwt-svid", "b")), `{"keys":[`, strings.TrimSuffix(string(jwks("a")), "]}")+",", 1)
	if err := foreign.Set("example.org", []byte(mixed)); err != nil || strings.Contains(string(foreign.Keys("example.org")), `"kid":"a"`) {
		t.Errorf("%v, %s", err, foreign.Keys("example.org"))
	}
}
