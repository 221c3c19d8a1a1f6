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

var witSVID = svid{
	ability: wire.WITSVID, parse: parseWITKeys, watch: func(i *Instance) keyWatcher { return i.WatchWITKeys },
	sign: func(ctx context.Context, s *Session, i *Instance, subject string) (ca.Token, error) {
		return i.SignWIT(ctx, s.witRequest(subject))
	},
}

// witChecks are those of an experimental ability: of WIT-SVIDs (standards/WIT-SVID.md on the
// experimental branch of github.com/spiffe/spiffe, commit 01b3a1ee).
func witChecks() []Check {
	good, signed := []string{"SET-06", "META-08"}, []string{"WIT-03"}
	return []Check{
		{"WIT-01", WITSVID, "It signs a WIT-SVID.", "That is the purpose of the ability, which is experimental.", good, witSVID.isSigned},
		{"WIT-02", WITSVID, "A watch sends the keys immediately: a JWK set of public keys, each with the use wit-svid and its own kid.", "Verifiers skip a key of another use.", good, witSVID.hasUsableKeys},
		{"WIT-03", WITSVID, "A published key, named by the kid, has signed it, by an RS, PS or ES algorithm.", "The host verifies it, as every verifier does.", []string{"WIT-01", "WIT-02"}, witSVID.verifies},
		{"WIT-04", WITSVID, "Its header has the type wit+jwt.", "The type keeps it from being accepted as a bearer token.", signed, witHasType},
		{"WIT-05", WITSVID, "Its subject is the one asked for.", "The host refuses any other.", signed, witSVID.claims(hasSubject)},
		{"WIT-06", WITSVID, "Its claim cnf has the public key of the request with its alg, as jwk, and nothing else.", "The workload proves that it has this key.", signed, witSVID.claims(confirmsKey)},
		{"WIT-07", WITSVID, "It has no audience.", "A token with one may be accepted as a JWT-SVID.", signed, witSVID.claims(hasNoAudience)},
		{"WIT-08", WITSVID, "It expires in the future, no later than asked for.", "Nothing else ends it.", signed, witSVID.claims(expires)},
		{"WIT-09", WITSVID, "It is valid at once: iat and nbf, where they are there, are not in the future.", "It is used the moment it comes.", signed, witSVID.claims(validNow)},
		{"WIT-10", WITSVID, "It rejects a private key as invalid.", "A token with it would publish the key.", []string{"WIT-01"}, witOfPrivateKey},
		{"WIT-11", WITSVID, "It rejects a SPIFFE ID that it must not certify as denied or invalid.", "All kinds of SVID name the same workloads.", []string{"WIT-01"}, witSVID.refusesIdentity},
		{"WIT-12", WITSVID, "Without settings it returns not configured.", "The host then sends the settings.", nil, witSVID.unconfigured},
		{"WIT-13", WITSVID, "None of its keys is a key of JWT-SVIDs or has the kid of one.", "A token of one kind would verify as one of the other.", []string{"WIT-02", "JWT-02"}, witKeysAreSeparate},
		{"WIT-14", WITSVID, "64 concurrent calls are all answered.", "An agent on a node serves many workloads.", []string{"WIT-01"}, witSVID.atOnce},
		{"WIT-15", WITSVID, "A watch of the keys stays open while nothing changes, and repeats nothing.", "Each set is sent to every workload.", []string{"WIT-02"}, witSVID.watchIsQuiet},
		{"WIT-16", WITSVID, "A cancelled watch of the keys ends within 250 ms.", "The host waits for it when it stops.", []string{"WIT-02"}, witSVID.watchEnds},
	}
}

func (s *Session) witRequest(subject string) ca.WITRequest {
	return ca.WITRequest{ID: uuid.NewString(), SubjectID: subject, PublicKey: []byte(witKey), TTL: svidLife, Token: s.Kit.Token}
}

// parseWITKeys parses a JWK set all of which are keys of WIT-SVIDs.
func parseWITKeys(jwks []byte) (jws.Keys, error) {
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(jwks, &all); err != nil {
		return nil, errors.New("not a JWK set in JSON")
	}
	keys, err := jws.ParseWITKeys(jwks)
	if err == nil && len(keys) < len(all.Keys) {
		err = fmt.Errorf("%d of %d keys are public keys with the use wit-svid", len(keys), len(all.Keys))
	}
	return keys, err
}

func witHasType(ctx context.Context, s *Session) error {
	parsed, _, err := witSVID.verified(ctx, s)
	if err == nil && parsed.Type() != "wit+jwt" {
		return fmt.Errorf("it is %.64q", parsed.Type())
	}
	return err
}

func confirmsKey(_ *Session, claims map[string]any) error {
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
}

func hasNoAudience(_ *Session, claims map[string]any) error {
	if aud, there := claims["aud"]; there {
		return fmt.Errorf("the claim aud is %.256q", fmt.Sprint(aud))
	}
	return nil
}

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

func witKeysAreSeparate(ctx context.Context, s *Session) error {
	wits, err := witSVID.keys(ctx, s)
	if err != nil {
		return err
	}
	jwts, err := jwtSVID.keys(ctx, s)
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
