package jwtsvid_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
)

// theirs is a request of a foreign trust domain, whose key is "a".
var theirs = ca.JWTRequest{SubjectID: "spiffe://partner.example/web", Audiences: []string{database}, TTL: time.Minute}

func set(t *testing.T, f *jwtsvid.Foreign, domain string, jwks []byte) {
	t.Helper()
	if err := f.Set(domain, jwks); err != nil {
		t.Fatal(err)
	}
}

func TestForeignTokenIsJudgedByTheKeysOfItsTrustDomainAlone(t *testing.T) {
	var f jwtsvid.Foreign
	good := token(t, "a", "a", claimsOf(theirs, nil), nil)
	if domain := f.DomainOf(good); domain != "partner.example" {
		t.Errorf("its trust domain is %q", domain)
	}
	if _, _, err := f.Validate(good, database, "partner.example"); !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("no keys yet: %v", err)
	}
	set(t, &f, "partner.example", jwks("a"))
	set(t, &f, "other.example", jwks("b"))
	id, claims, err := f.Validate(good, database, "partner.example")
	if err != nil || id != theirs.SubjectID || claims["sub"] != id {
		t.Errorf("%s %v, %v", id, claims, err)
	}
	for name, test := range map[string]struct {
		token            ca.Token
		audience, domain string
	}{
		"another's key":      {token(t, "b", "b", claimsOf(theirs, nil), nil), database, "partner.example"},
		"with another's kid": {token(t, "b", "a", claimsOf(theirs, nil), nil), database, "partner.example"},
		"of another domain":  {token(t, "a", "a", claimsOf(theirs, claimSet{"sub": "spiffe://other.example/web"}), nil), database, "partner.example"},
		"as another domain":  {good, database, "other.example"},
		"audience":           {good, "other", "partner.example"},
		"no audience":        {good, "", "partner.example"},
	} {
		if id, claims, err := f.Validate(test.token, test.audience, test.domain); !errors.Is(err, ca.ErrInvalid) || id != "" || claims != nil {
			t.Errorf("%s: %s, %v", name, id, err)
		}
	}
	for name, forge := range bad(t, theirs) {
		if _, _, err := f.Validate(forge(), database, "partner.example"); !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		f.DomainOf(forge())
	}
}

func TestForeignKeysAreReplacedRevokedOrKept(t *testing.T) {
	var f jwtsvid.Foreign
	told := 0
	stop := f.Watch(func() { told++ })
	set(t, &f, "partner.example", jwks("a"))
	set(t, &f, "partner.example", jwks("a")) // nothing new
	if told != 1 || f.Keys("partner.example") == nil || f.Keys("other.example") != nil {
		t.Errorf("notified %d times", told)
	}
	held := string(f.Keys("partner.example"))
	for name, keys := range map[string]string{"no JSON": "x", "no keys": "{}", "no usable key": `{"keys":[{"kty":"oct","k":"AAAA","kid":"x"}]}`, "no kid": `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`} {
		if err := f.Set("partner.example", []byte(keys)); err == nil || string(f.Keys("partner.example")) != held {
			t.Errorf("%s: %v", name, err)
		}
	}
	old := token(t, "a", "a", claimsOf(theirs, nil), nil)
	set(t, &f, "partner.example", jwks("b"))
	if _, _, err := f.Validate(old, database, "partner.example"); err == nil {
		t.Error("a token under a dropped key is accepted")
	}
	set(t, &f, "partner.example", []byte("{\n  \"keys\": []\n}\n"))
	if _, _, err := f.Validate(token(t, "b", "b", claimsOf(theirs, nil), nil), database, "partner.example"); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("all keys are revoked: %v", err)
	}
	stop()
	stop()
	set(t, &f, "partner.example", jwks("a"))
	if told != 3 {
		t.Errorf("notified %d times", told)
	}
}

func TestForeignTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f jwtsvid.Foreign
		set(t, &f, "partner.example", jwks("a"))
		good := token(t, "a", "a", claimsOf(theirs, nil), nil)
		for after, valid := range map[time.Duration]bool{0: true, 2 * time.Minute: false} {
			f.Now = func() time.Time { return time.Now().Add(after) }
			if _, _, err := f.Validate(good, database, "partner.example"); (err == nil) != valid {
				t.Errorf("after %s: %v", after, err)
			}
		}
	})
}
