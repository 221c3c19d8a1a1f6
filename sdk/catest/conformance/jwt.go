package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// What the JWT-SVIDs of the checks are for, and how long they are to live.
const (
	jwtLife   = 5 * time.Minute
	jwtLeeway = 30 * time.Second
)

var jwtAudiences = []string{"https://conformance.example/", "queue"}

func jwtChecks() []Check {
	good, signed := []string{"SET-06", "META-08"}, []string{"JWT-03"}
	return []Check{
		{"JWT-01", JWTSVID, "It signs a JWT-SVID.", "That is the purpose of the ability.", good, jwtIsSigned},
		{"JWT-02", JWTSVID, "A watch sends the keys immediately: a JWK set of public keys, each with its own kid.", "A set that cannot be used is refused as a whole.", good, jwtKeysAreUsable},
		{"JWT-03", JWTSVID, "A published key, named by the kid, has signed it, by an RS, PS or ES algorithm.", "The host verifies it, as everybody does.", []string{"JWT-01", "JWT-02"}, jwtVerifies},
		{"JWT-04", JWTSVID, "Its subject is the one asked for.", "The host refuses any other.", signed, jwtHasSubject},
		{"JWT-05", JWTSVID, "Its audiences are those asked for and no others.", "A token for one more service is good for that, too.", signed, jwtHasAudiences},
		{"JWT-06", JWTSVID, "It expires in the future, no later than asked for.", "Nothing else ends it.", signed, jwtExpires},
		{"JWT-07", JWTSVID, "It is valid at once: iat and nbf, where they are there, are not in the future.", "It is used the moment it comes.", signed, jwtIsValidNow},
		{"JWT-08", JWTSVID, "It rejects a SPIFFE ID that it must not certify as denied or invalid.", "Both kinds of SVID name the same workloads.", []string{"JWT-01"}, jwtOfRefusedIdentity},
		{"JWT-09", JWTSVID, "Without settings it returns not configured.", "The host then sends the settings.", nil, jwtUnconfigured},
		{"JWT-10", JWTSVID, "64 concurrent calls are all answered.", "An agent on a node serves many workloads.", []string{"JWT-01"}, jwtsAtOnce},
		{"JWT-11", JWTSVID, "A watch of the keys stays open while nothing changes, and repeats nothing.", "Each set is sent to every workload.", []string{"JWT-02"}, jwtWatchIsQuiet},
		{"JWT-12", JWTSVID, "A cancelled watch of the keys ends within 250 ms.", "The host waits for it when it stops.", []string{"JWT-02"}, jwtWatchEnds},
	}
}

// keyWatcher watches keys as others watch roots.
type keyWatcher struct{ ca.JWTSigner }

func (k keyWatcher) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	return k.WatchJWTKeys(ctx, changed)
}

func (s *Session) jwtRequest(subject string) ca.JWTRequest {
	return ca.JWTRequest{ID: uuid.NewString(), SubjectID: subject, Audiences: slices.Clone(jwtAudiences), TTL: jwtLife, Token: s.Kit.Token}
}

// jwt returns a JWT-SVID of the kit's identity.
func (s *Session) jwt(ctx context.Context) (ca.Token, error) {
	i, err := s.having(ctx, wire.JWTSVID)
	if err != nil {
		return "", err
	}
	if s.Kit.Identity.SPIFFEID == "" {
		return "", needs("identity.spiffe_id", "")
	}
	return s.jwtBy(ctx, i, s.Kit.Identity.SPIFFEID)
}

func (s *Session) jwtBy(ctx context.Context, i *Instance, subject string) (ca.Token, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	token, err := i.SignJWT(ctx, s.jwtRequest(subject))
	if err == nil && token == "" {
		err = errors.New("the JWT-SVID is empty")
	}
	return token, err
}

func jwtIsSigned(ctx context.Context, s *Session) error {
	_, err := s.jwt(ctx)
	return err
}

// keysWatched starts a watch of the keys on the shared instance.
func (s *Session) keysWatched(ctx context.Context) (*watching, error) {
	i, err := s.having(ctx, wire.JWTSVID)
	if err != nil {
		return nil, err
	}
	return s.watch(ctx, keyWatcher{i}), nil
}

func (s *Session) jwtKeys(ctx context.Context) (jws.Keys, error) {
	w, err := s.keysWatched(ctx)
	if err != nil {
		return nil, err
	}
	defer w.close()
	text, err := w.first()
	if err != nil {
		return nil, err
	}
	return jws.ParseKeys(text)
}

func jwtKeysAreUsable(ctx context.Context, s *Session) error {
	keys, err := s.jwtKeys(ctx)
	if err != nil {
		return err
	}
	return uniqueIDs(keys)
}

func uniqueIDs(keys jws.Keys) error {
	seen := map[string]bool{}
	for _, key := range keys {
		if key.KeyID == "" || seen[key.KeyID] {
			return fmt.Errorf("one of %d keys has the kid %.64q, which is not unique", len(keys), key.KeyID)
		}
		seen[key.KeyID] = true
	}
	return nil
}

// jwtClaims are the claims of a token that a published key has signed.
func (s *Session) jwtClaims(ctx context.Context) (claims map[string]any, err error) {
	token, err := s.jwt(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := s.jwtKeys(ctx)
	if err != nil {
		return nil, err
	}
	_, claims, err = verified(token, keys)
	return claims, err
}

// verified returns a token and its claims, if one of the keys has signed it.
func verified(token ca.Token, keys jws.Keys) (parsed jws.Token, claims map[string]any, err error) {
	if parsed, err = jws.Parse(token.Reveal(), jws.SVIDAlgorithms); err != nil {
		return parsed, nil, err
	}
	if parsed.KeyID == "" {
		return parsed, nil, errors.New("its header has no kid")
	}
	payload, err := parsed.Payload(keys.Find(parsed.KeyID, parsed.Algorithm))
	if err != nil {
		return parsed, nil, err
	}
	return parsed, claims, json.Unmarshal(payload, &claims)
}

func jwtVerifies(ctx context.Context, s *Session) error {
	_, err := s.jwtClaims(ctx)
	return err
}

func jwtHasSubject(ctx context.Context, s *Session) error {
	claims, err := s.jwtClaims(ctx)
	if err == nil && claims["sub"] != s.Kit.Identity.SPIFFEID {
		return fmt.Errorf("it is %.256q", fmt.Sprint(claims["sub"]))
	}
	return err
}

func jwtHasAudiences(ctx context.Context, s *Session) error {
	claims, err := s.jwtClaims(ctx)
	if err != nil {
		return err
	}
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

func jwtExpires(ctx context.Context, s *Session) error {
	claims, err := s.jwtClaims(ctx)
	if err != nil {
		return err
	}
	return expires(claims)
}

func expires(claims map[string]any) error {
	seconds, ok := claims["exp"].(float64)
	if !ok || !jws.IsTime(seconds) {
		return fmt.Errorf("the claim exp is %.64q", fmt.Sprint(claims["exp"]))
	}
	if ends, now := jws.At(seconds), time.Now(); !ends.After(now) || ends.After(now.Add(jwtLife+jwtLeeway)) {
		return fmt.Errorf("it expires at %s; asked for was %s from now, %s", clock.Stamp(ends), jwtLife, clock.Stamp(now))
	}
	return nil
}

func jwtIsValidNow(ctx context.Context, s *Session) error {
	claims, err := s.jwtClaims(ctx)
	if err != nil {
		return err
	}
	return validNow(claims)
}

func validNow(claims map[string]any) error {
	for _, name := range []string{"iat", "nbf"} {
		claim, there := claims[name]
		seconds, ok := claim.(float64)
		if there && (!ok || !jws.IsTime(seconds) || jws.At(seconds).After(time.Now().Add(jwtLeeway))) {
			return fmt.Errorf("the claim %s is %.64q", name, fmt.Sprint(claim))
		}
	}
	return nil
}

func jwtOfRefusedIdentity(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, wire.JWTSVID)
	if err != nil {
		return err
	}
	if s.Kit.RefusedIdentity.SPIFFEID == "" {
		return needs("refused_identity.spiffe_id", "")
	}
	_, err = s.jwtBy(ctx, i, s.Kit.RefusedIdentity.SPIFFEID)
	return mustBe(err, ca.Denied, ca.Invalid)
}

func jwtUnconfigured(ctx context.Context, s *Session) error {
	return unconfigured(ctx, s, wire.JWTSVID)
}

func jwtsAtOnce(ctx context.Context, s *Session) error {
	if _, err := s.jwt(ctx); err != nil {
		return err
	}
	i, err := s.Ready()
	if err != nil {
		return err
	}
	return together(ctx, s.crowd, func() (sending, error) {
		return func(ctx context.Context) error { _, err := s.jwtBy(ctx, i, s.Kit.Identity.SPIFFEID); return err }, nil
	})
}

func jwtWatchIsQuiet(ctx context.Context, s *Session) error {
	w, err := s.keysWatched(ctx)
	if err != nil {
		return err
	}
	return staysQuiet(w, func() { _, _ = s.jwtKeys(ctx) })
}

func staysQuiet(w *watching, control func()) error {
	defer w.close()
	first, err := w.first()
	if err != nil {
		return err
	}
	switch disturbed := inTime(quiet, control, func() bool { return w.ended() || len(w.told) > 0 }); {
	case disturbed && len(w.told) > 0:
		if next := <-w.told; string(next) == string(first) {
			return errors.New("the same set came twice")
		}
	case disturbed:
		return fmt.Errorf("it ended with %w", orNone(w.err))
	}
	return nil
}

func jwtWatchEnds(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, wire.JWTSVID)
	if err != nil {
		return err
	}
	if i.Conn != nil && i.Busy == nil {
		return NotRun("a process does not show how long a cancelled watch keeps running")
	}
	return prompt(func() error { return s.watchEndsOnce(ctx, i, keyWatcher{i}) })
}
