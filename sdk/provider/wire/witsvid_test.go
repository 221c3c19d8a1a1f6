package wire_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// witSigner answers with its token and its keys, or with its error.
type witSigner struct {
	fake
	asked ca.WITRequest
	token ca.Token
	jwks  []byte
	err   error
}

func (s *witSigner) SignWIT(_ context.Context, req ca.WITRequest) (ca.Token, error) {
	s.asked = req
	return s.token, s.err
}

func (s *witSigner) WatchWITKeys(_ context.Context, changed func([]byte) error) error {
	return errors.Join(changed(s.jwks), s.err)
}

// The key of RFC 7517, appendix A.1.
const publicJWK = `{"kty":"EC","alg":"ES256","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}`

func witRequest() ca.WITRequest {
	return ca.WITRequest{
		ID: "7b3bd6a1-4b5d-4a8e-9a3e-0c7d2f1e9b10", SubjectID: "spiffe://example.org/web", PublicKey: []byte(publicJWK),
		TTL: 5 * time.Minute, Token: "eyJ.the-credential-of-the-workload",
	}
}

func TestWITRequestAndReplyArriveUnchanged(t *testing.T) {
	s := &witSigner{token: "eyJ.the.svid", jwks: []byte(`{"keys":[]}`)}
	remote := wire.NewRemote(serve(t, s), wire.RemoteOptions{})
	got, err := remote.SignWIT(t.Context(), witRequest())
	if err != nil || got != s.token || !reflect.DeepEqual(s.asked, witRequest()) {
		t.Errorf("got %v, for %+v", err, s.asked)
	}
	var keys []string
	err = remote.WatchWITKeys(t.Context(), func(jwks []byte) error { keys = append(keys, string(jwks)); return nil })
	if !errors.Is(err, ca.ErrUnavailable) || !slices.Equal(keys, []string{`{"keys":[]}`}) {
		t.Errorf("keys %q, %v", keys, err)
	}
}

func TestBadWITRequestIsInvalidAtBothEnds(t *testing.T) {
	s := &witSigner{token: "eyJ.the.svid"}
	conn := serve(t, s)
	remote, raw := wire.NewRemote(conn, wire.RemoteOptions{}), providerv1.NewWitSvidClient(conn)
	for name, change := range map[string]func(*ca.WITRequest){
		"no-uuid":      func(r *ca.WITRequest) { r.ID = "1" },
		"no-spiffe-id": func(r *ca.WITRequest) { r.SubjectID = "web" },
		"long-subject": func(r *ca.WITRequest) { r.SubjectID += strings.Repeat("x", 3000) },
		"no-key":       func(r *ca.WITRequest) { r.PublicKey = nil },
		"private-key": func(r *ca.WITRequest) {
			r.PublicKey = []byte(strings.Replace(publicJWK, "{", `{"d":"870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE",`, 1))
		},
		"no-alg":        func(r *ca.WITRequest) { r.PublicKey = []byte(strings.Replace(publicJWK, `"alg":"ES256",`, "", 1)) },
		"long-key":      func(r *ca.WITRequest) { r.PublicKey = []byte(publicJWK + strings.Repeat(" ", 2048)) },
		"no-life":       func(r *ca.WITRequest) { r.TTL = 0 },
		"negative-life": func(r *ca.WITRequest) { r.TTL = -time.Minute },
		"odd-token":     func(r *ca.WITRequest) { r.Token = "a\nb" },
	} {
		req := witRequest()
		change(&req)
		if _, err := remote.SignWIT(t.Context(), req); !errors.Is(err, ca.ErrInvalid) || strings.Contains(err.Error(), "870MB6gf") {
			t.Errorf("%s, at the host: %v", name, err)
		}
		_, err := raw.SignWit(t.Context(), &providerv1.SignWitRequest{
			RequestId: req.ID, SubjectId: req.SubjectID, PublicKey: req.PublicKey, Ttl: durationpb.New(req.TTL), Token: req.Token.Reveal(),
		})
		if err == nil || !strings.Contains(err.Error(), "InvalidArgument") || s.asked.ID != "" {
			t.Errorf("%s, at the provider: %v", name, err)
		}
	}
}

func TestWITReplyIsBounded(t *testing.T) {
	for _, s := range []*witSigner{{jwks: nil}, {token: ca.Token(strings.Repeat("x", 17<<10)), jwks: make([]byte, 300<<10)}} {
		remote := wire.NewRemote(serve(t, s), wire.RemoteOptions{})
		if got, err := remote.SignWIT(t.Context(), witRequest()); !errors.Is(err, ca.ErrInternal) || got != "" {
			t.Errorf("%d bytes: %v", len(s.token), err)
		}
		err := remote.WatchWITKeys(t.Context(), func([]byte) error { t.Error("passed on"); return nil })
		if !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%d bytes of keys: %v", len(s.jwks), err)
		}
	}
}

func TestCredentialIsInNoErrorOfWITs(t *testing.T) {
	s := &witSigner{err: ca.Errorf(ca.Unauthenticated, "not taken: %s", witRequest().Token.Reveal())}
	_, err := wire.NewRemote(serve(t, s), wire.RemoteOptions{}).SignWIT(t.Context(), witRequest())
	if !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(err.Error(), "credential") {
		t.Error(err)
	}
}
