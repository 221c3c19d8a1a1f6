package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/internal/jws"
	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// witKey is the key that the WIT-SVIDs of the checks confirm, and witPrivate its private half: those
// of RFC 7517, appendix A.
const (
	witKey     = `{"kty":"EC","alg":"ES256","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}`
	witPrivate = "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE"
)

// witChecks are those of an experimental ability: of WIT-SVIDs (standards/WIT-SVID.md on the
// experimental branch of github.com/spiffe/spiffe, commit 01b3a1ee).
func witChecks() []Check {
	good, signed := []string{"SET-06", "META-08"}, []string{"WIT-03"}
	return []Check{
		{"WIT-01", WITSVID, "It signs a WIT-SVID.", "That is the purpose of the ability, which is experimental.", good, witIsSigned},
		{"WIT-02", WITSVID, "A watch sends the keys immediately: a JWK set of public keys, each with the use wit-svid and its own kid.", "Verifiers skip a key of another use.", good, witKeysAreUsable},
		{"WIT-03", WITSVID, "A published key, named by the kid, has signed it, by an RS, PS or ES algorithm.", "The host verifies it, as every verifier does.", []string{"WIT-01", "WIT-02"}, witVerifies},
		{"WIT-04", WITSVID, "Its header has the type wit+jwt.", "The type keeps it from being accepted as a bearer token.", signed, witHasType},
		{"WIT-05", WITSVID, "Its subject is the one asked for.", "The host refuses any other.", signed, witHasSubject},
		{"WIT-06", WITSVID, "Its claim cnf has the public key of the request with its alg, as jwk, and nothing else.", "The workload proves that it has this key.", signed, witConfirmsKey},
		{"WIT-07", WITSVID, "It has no audience.", "A token with one may be accepted as a JWT-SVID.", signed, witHasNoAudience},
		{"WIT-08", WITSVID, "It expires in the future, no later than asked for.", "Nothing else ends it.", signed, witExpires},
		{"WIT-09", WITSVID, "It is valid at once: iat and nbf, where they are there, are not in the future.", "It is used the moment it comes.", signed, witIsValidNow},
		{"WIT-10", WITSVID, "It rejects a private key as invalid.", "A token with it would publish the key.", []string{"WIT-01"}, witOfPrivateKey},
		{"WIT-11", WITSVID, "It rejects a SPIFFE ID that it must not certify as denied or invalid.", "All kinds of SVID name the same workloads.", []string{"WIT-01"}, witOfRefusedIdentity},
		{"WIT-12", WITSVID, "Without settings it returns not configured.", "The host then sends the settings.", nil, witUnconfigured},
		{"WIT-13", WITSVID, "None of its keys is a key of JWT-SVIDs or has the kid of one.", "A token of one kind would verify as one of the other.", []string{"WIT-02", "JWT-02"}, witKeysAreSeparate},
		{"WIT-14", WITSVID, "64 concurrent calls are all answered.", "An agent on a node serves many workloads.", []string{"WIT-01"}, witsAtOnce},
		{"WIT-15", WITSVID, "A watch of the keys stays open while nothing changes, and repeats nothing.", "Each set is sent to every workload.", []string{"WIT-02"}, witWatchIsQuiet},
		{"WIT-16", WITSVID, "A cancelled watch of the keys ends within 250 ms.", "The host waits for it when it stops.", []string{"WIT-02"}, witWatchEnds},
	}
}

// witKeyWatcher watches keys as others watch roots.
type witKeyWatcher struct{ ca.WITSigner }

func (k witKeyWatcher) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	return k.WatchWITKeys(ctx, changed)
}

func (s *Session) witRequest(subject string) ca.WITRequest {
	return ca.WITRequest{ID: uuid.NewString(), SubjectID: subject, PublicKey: []byte(witKey), TTL: jwtLife, Token: s.Kit.Token}
}

// wit returns a WIT-SVID of the kit's identity.
func (s *Session) wit(ctx context.Context) (ca.Token, error) {
	i, err := s.having(ctx, wire.WITSVID)
	if err != nil {
		return "", err
	}
	if s.Kit.Identity.SPIFFEID == "" {
		return "", needs("identity.spiffe_id", "")
	}
	return s.witBy(ctx, i, s.Kit.Identity.SPIFFEID)
}

func (s *Session) witBy(ctx context.Context, i *Instance, subject string) (ca.Token, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	token, err := i.SignWIT(ctx, s.witRequest(subject))
	if err == nil && token == "" {
		err = errors.New("the WIT-SVID is empty")
	}
	return token, err
}

func witIsSigned(ctx context.Context, s *Session) error {
	_, err := s.wit(ctx)
	return err
}

// witKeysWatched starts a watch of the keys on the shared instance.
func (s *Session) witKeysWatched(ctx context.Context) (*watching, error) {
	i, err := s.having(ctx, wire.WITSVID)
	if err != nil {
		return nil, err
	}
	return s.watch(ctx, witKeyWatcher{i}), nil
}

func (s *Session) witKeys(ctx context.Context) (jws.Keys, error) {
	w, err := s.witKeysWatched(ctx)
	if err != nil {
		return nil, err
	}
	defer w.close()
	text, err := w.first()
	if err != nil {
		return nil, err
	}
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, errors.New("not a JWK set in JSON")
	}
	keys, err := jws.ParseWITKeys(text)
	if err == nil && len(keys) < len(all.Keys) {
		err = fmt.Errorf("%d of %d keys are public keys with the use wit-svid", len(keys), len(all.Keys))
	}
	return keys, err
}

func witKeysAreUsable(ctx context.Context, s *Session) error {
	keys, err := s.witKeys(ctx)
	if err != nil {
		return err
	}
	return uniqueIDs(keys)
}

// witClaims are the header and the claims of a token that a published key has signed.
func (s *Session) witClaims(ctx context.Context) (parsed jws.Token, claims map[string]any, err error) {
	token, err := s.wit(ctx)
	if err != nil {
		return parsed, nil, err
	}
	keys, err := s.witKeys(ctx)
	if err != nil {
		return parsed, nil, err
	}
	return verified(token, keys)
}

// onWIT judges the claims of a token that verifies.
func onWIT(ctx context.Context, s *Session, judge func(claims map[string]any) error) error {
	_, claims, err := s.witClaims(ctx)
	if err != nil {
		return err
	}
	return judge(claims)
}

func witVerifies(ctx context.Context, s *Session) error {
	return onWIT(ctx, s, func(map[string]any) error { return nil })
}

func witHasType(ctx context.Context, s *Session) error {
	parsed, _, err := s.witClaims(ctx)
	if err == nil && parsed.Type() != "wit+jwt" {
		return fmt.Errorf("it is %.64q", parsed.Type())
	}
	return err
}

func witHasSubject(ctx context.Context, s *Session) error {
	return onWIT(ctx, s, func(claims map[string]any) error {
		if claims["sub"] != s.Kit.Identity.SPIFFEID {
			return fmt.Errorf("it is %.256q", fmt.Sprint(claims["sub"]))
		}
		return nil
	})
}

func witConfirmsKey(ctx context.Context, s *Session) error {
	return onWIT(ctx, s, func(claims map[string]any) error {
		confirmation, _ := claims["cnf"].(map[string]any)
		if len(confirmation) != 1 || confirmation["jwk"] == nil {
			return fmt.Errorf("the claim cnf has %d members, want jwk alone", len(confirmation))
		}
		text, err := json.Marshal(confirmation["jwk"])
		if err != nil {
			return err
		}
		got, err := jws.ParseProofKey(text)
		if err != nil {
			return fmt.Errorf("the claim cnf.jwk: %w", err)
		}
		if want, err := jws.ParseProofKey([]byte(witKey)); err != nil || !jws.SameKey(got, want) {
			return errors.Join(errors.New("the claim cnf.jwk is another key"), err)
		}
		return nil
	})
}

func witHasNoAudience(ctx context.Context, s *Session) error {
	return onWIT(ctx, s, func(claims map[string]any) error {
		if aud, there := claims["aud"]; there {
			return fmt.Errorf("the claim aud is %.256q", fmt.Sprint(aud))
		}
		return nil
	})
}

func witExpires(ctx context.Context, s *Session) error { return onWIT(ctx, s, expires) }

func witIsValidNow(ctx context.Context, s *Session) error { return onWIT(ctx, s, validNow) }

// witOfPrivateKey asks below the client, which would refuse the request itself.
func witOfPrivateKey(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, wire.WITSVID)
	if err != nil {
		return err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	req := s.witRequest(s.Kit.Identity.SPIFFEID)
	req.PublicKey = []byte(strings.Replace(witKey, "{", `{"d":"`+witPrivate+`",`, 1))
	if i.Conn == nil {
		_, err = i.SignWIT(ctx, req)
		return mustBe(err, ca.Invalid)
	}
	_, err = providerv1.NewWitSvidClient(i.Conn).SignWit(ctx, &providerv1.SignWitRequest{
		RequestId: req.ID, SubjectId: req.SubjectID, PublicKey: req.PublicKey, Ttl: durationpb.New(req.TTL), Token: req.Token.Reveal(),
	})
	if status.Code(err) != codes.InvalidArgument {
		return fmt.Errorf("it answers %w", orNone(err))
	}
	return nil
}

func witOfRefusedIdentity(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, wire.WITSVID)
	if err != nil {
		return err
	}
	if s.Kit.RefusedIdentity.SPIFFEID == "" {
		return needs("refused_identity.spiffe_id", "")
	}
	_, err = s.witBy(ctx, i, s.Kit.RefusedIdentity.SPIFFEID)
	return mustBe(err, ca.Denied, ca.Invalid)
}

func witUnconfigured(ctx context.Context, s *Session) error {
	return unconfigured(ctx, s, wire.WITSVID)
}

func witKeysAreSeparate(ctx context.Context, s *Session) error {
	wits, err := s.witKeys(ctx)
	if err != nil {
		return err
	}
	jwts, err := s.jwtKeys(ctx)
	if err != nil {
		return err
	}
	for _, wit := range wits {
		for _, jwt := range jwts {
			wit.Algorithm, jwt.Algorithm = "", "" // one may not be stated
			if wit.KeyID == jwt.KeyID || jws.SameKey(wit, jwt) {
				return fmt.Errorf("the key %.64q is a key of JWT-SVIDs, too, or has the kid of one", wit.KeyID)
			}
		}
	}
	return nil
}

func witsAtOnce(ctx context.Context, s *Session) error {
	if _, err := s.wit(ctx); err != nil {
		return err
	}
	i, err := s.Ready()
	if err != nil {
		return err
	}
	return together(ctx, s.crowd, func() (sending, error) {
		return func(ctx context.Context) error { _, err := s.witBy(ctx, i, s.Kit.Identity.SPIFFEID); return err }, nil
	})
}

func witWatchIsQuiet(ctx context.Context, s *Session) error {
	w, err := s.witKeysWatched(ctx)
	if err != nil {
		return err
	}
	return staysQuiet(w, func() { _, _ = s.witKeys(ctx) })
}

func witWatchEnds(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, wire.WITSVID)
	if err != nil {
		return err
	}
	if i.Conn != nil && i.Busy == nil {
		return NotRun("a process does not show how long a cancelled watch keeps running")
	}
	return prompt(func() error { return s.watchEndsOnce(ctx, i, witKeyWatcher{i}) })
}
