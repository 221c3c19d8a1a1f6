package wire_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// jwtSigner answers with its token and its keys, or with its error.
type jwtSigner struct {
	fake
	asked ca.JWTRequest
	token ca.Token
	jwks  []byte
	err   error
}

func (s *jwtSigner) SignJWT(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
	s.asked = req
	return s.token, s.err
}

func (s *jwtSigner) WatchJWTKeys(_ context.Context, changed func([]byte) error) error {
	return errors.Join(changed(s.jwks), s.err)
}

func jwtRequest() ca.JWTRequest {
	return ca.JWTRequest{
		ID: "7b3bd6a1-4b5d-4a8e-9a3e-0c7d2f1e9b10", SubjectID: "spiffe://example.org/web", Audiences: []string{"a", "b"},
		TTL: 5 * time.Minute, Token: "eyJ.the-credential-of-the-workload",
	}
}

func TestJWTRequestAndReplyArriveUnchanged(t *testing.T) {
	s := &jwtSigner{token: "eyJ.the.svid", jwks: []byte(`{"keys":[]}`)}
	remote := wire.NewRemote(serve(t, s), wire.RemoteOptions{})
	got, err := remote.SignJWT(t.Context(), jwtRequest())
	if err != nil || got != s.token || !reflect.DeepEqual(s.asked, jwtRequest()) {
		t.Errorf("got %v, for %+v", err, s.asked)
	}
	var keys []string
	err = remote.WatchJWTKeys(t.Context(), func(jwks []byte) error { keys = append(keys, string(jwks)); return nil })
	if !errors.Is(err, ca.ErrUnavailable) || !slices.Equal(keys, []string{`{"keys":[]}`}) {
		t.Errorf("keys %q, %v", keys, err)
	}
}

func TestBadJWTRequestIsInvalidAtBothEnds(t *testing.T) {
	s := &jwtSigner{token: "eyJ.the.svid"}
	remote := wire.NewRemote(serve(t, s), wire.RemoteOptions{})
	for name, change := range map[string]func(*ca.JWTRequest){
		"no-uuid":        func(r *ca.JWTRequest) { r.ID = "1" },
		"no-spiffe-id":   func(r *ca.JWTRequest) { r.SubjectID = "web" },
		"long-subject":   func(r *ca.JWTRequest) { r.SubjectID += strings.Repeat("x", 3000) },
		"no-audience":    func(r *ca.JWTRequest) { r.Audiences = nil },
		"empty-audience": func(r *ca.JWTRequest) { r.Audiences = []string{""} },
		"line-break":     func(r *ca.JWTRequest) { r.Audiences = []string{"a\nb"} },
		"many-audiences": func(r *ca.JWTRequest) { r.Audiences = slices.Repeat([]string{"a"}, 65) },
		"no-life":        func(r *ca.JWTRequest) { r.TTL = 0 },
		"odd-token":      func(r *ca.JWTRequest) { r.Token = "a\nb" },
	} {
		req := jwtRequest()
		change(&req)
		if _, err := remote.SignJWT(t.Context(), req); !errors.Is(err, ca.ErrInvalid) || s.asked.ID != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJWTReplyIsBounded(t *testing.T) {
	for _, s := range []*jwtSigner{{jwks: nil}, {token: ca.Token(strings.Repeat("x", 17<<10)), jwks: make([]byte, 300<<10)}} {
		remote := wire.NewRemote(serve(t, s), wire.RemoteOptions{})
		if got, err := remote.SignJWT(t.Context(), jwtRequest()); !errors.Is(err, ca.ErrInternal) || got != "" {
			t.Errorf("%d bytes: %v", len(s.token), err)
		}
		err := remote.WatchJWTKeys(t.Context(), func([]byte) error { t.Error("passed on"); return nil })
		if !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%d bytes of keys: %v", len(s.jwks), err)
		}
	}
}

func TestCredentialIsInNoErrorOfJWTs(t *testing.T) {
	s := &jwtSigner{err: ca.Errorf(ca.Unauthenticated, "not taken: %s", jwtRequest().Token.Reveal())}
	_, err := wire.NewRemote(serve(t, s), wire.RemoteOptions{}).SignJWT(t.Context(), jwtRequest())
	if !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(err.Error(), "credential") {
		t.Error(err)
	}
}
