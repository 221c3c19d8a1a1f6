package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// jwtAudiences are what the JWT-SVIDs of the checks are for.
var jwtAudiences = []string{"https://conformance.example/", "queue"}

var jwtSVID = svid{
	ability: wire.JWTSVID, parse: jws.ParseKeys, watch: func(i *Instance) keyWatcher { return i.WatchJWTKeys },
	sign: func(ctx context.Context, s *Session, i *Instance, subject string) (ca.Token, error) {
		return i.SignJWT(ctx, s.jwtRequest(subject))
	},
}

func jwtChecks() []Check {
	good, signed := []string{"SET-06", "META-08"}, []string{"JWT-03"}
	return []Check{
		{"JWT-01", JWTSVID, "It signs a JWT-SVID.", "That is the purpose of the ability.", good, jwtSVID.isSigned},
		{"JWT-02", JWTSVID, "A watch sends the keys immediately: a JWK set of public keys, each with its own kid.", "A set that cannot be used is refused as a whole.", good, jwtSVID.hasUsableKeys},
		{"JWT-03", JWTSVID, "A published key, named by the kid, has signed it, by an RS, PS or ES algorithm.", "The host verifies it, as everybody does.", []string{"JWT-01", "JWT-02"}, jwtSVID.verifies},
		{"JWT-04", JWTSVID, "Its subject is the one asked for.", "The host refuses any other.", signed, jwtSVID.claims(hasSubject)},
		{"JWT-05", JWTSVID, "Its audiences are those asked for and no others.", "A token for one more service is good for that, too.", signed, jwtSVID.claims(hasAudiences)},
		{"JWT-06", JWTSVID, "It expires in the future, no later than asked for.", "Nothing else ends it.", signed, jwtSVID.claims(expires)},
		{"JWT-07", JWTSVID, "It is valid at once: iat and nbf, where they are there, are not in the future.", "It is used the moment it comes.", signed, jwtSVID.claims(validNow)},
		{"JWT-08", JWTSVID, "It rejects a SPIFFE ID that it must not certify as denied or invalid.", "Both kinds of SVID name the same workloads.", []string{"JWT-01"}, jwtSVID.refusesIdentity},
		{"JWT-09", JWTSVID, "Without settings it returns not configured.", "The host then sends the settings.", nil, jwtSVID.unconfigured},
		{"JWT-10", JWTSVID, "64 concurrent calls are all answered.", "An agent on a node serves many workloads.", []string{"JWT-01"}, jwtSVID.atOnce},
		{"JWT-11", JWTSVID, "A watch of the keys stays open while nothing changes, and repeats nothing.", "Each set is sent to every workload.", []string{"JWT-02"}, jwtSVID.watchIsQuiet},
		{"JWT-12", JWTSVID, "A cancelled watch of the keys ends within 250 ms.", "The host waits for it when it stops.", []string{"JWT-02"}, jwtSVID.watchEnds},
	}
}

func (s *Session) jwtRequest(subject string) ca.JWTRequest {
	return ca.JWTRequest{ID: uuid.NewString(), SubjectID: subject, Audiences: slices.Clone(jwtAudiences), TTL: svidLife, Token: s.Kit.Token}
}

func hasAudiences(_ *Session, claims map[string]any) error {
	text, err := json.Marshal(claims["aud"])
	if err != nil {
		return err
	}
	var got jws.Audience
	if err := json.Unmarshal(text, &got); err != nil {
		return errors.New("the claim aud is neither a string nor a list of strings")
	}
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(slices.Values(jwtAudiences))) {
		return fmt.Errorf("they are %.256q", strings.Join(got, " "))
	}
	return nil
}
