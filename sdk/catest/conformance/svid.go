package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// How long the SVIDs of the checks are to live, and how far clocks may differ.
const (
	svidLife   = 5 * time.Minute
	svidLeeway = 30 * time.Second
)

// svid is a kind of signed tokens, with the checks that all kinds have.
type svid struct {
	ability wire.Ability
	sign    func(ctx context.Context, s *Session, i *Instance, subject string) (ca.Token, error)
	watch   func(i *Instance) keyWatcher
	parse   func(jwks []byte) (jws.Keys, error)
}

// keyWatcher watches keys as others watch roots.
type keyWatcher func(ctx context.Context, changed func([]byte) error) error

// WatchRoots implements [ca.RootWatcher].
func (k keyWatcher) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	return k(ctx, changed)
}

// token returns an SVID of the kit's identity.
func (k svid) token(ctx context.Context, s *Session) (ca.Token, error) {
	i, err := s.having(ctx, k.ability)
	if err != nil {
		return "", err
	}
	if s.Kit.Identity.SPIFFEID == "" {
		return "", needs("identity.spiffe_id", "")
	}
	return k.of(ctx, s, i, s.Kit.Identity.SPIFFEID)
}

func (k svid) of(ctx context.Context, s *Session, i *Instance, subject string) (ca.Token, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	token, err := k.sign(ctx, s, i, subject)
	if err == nil && token == "" {
		err = errors.New("it is empty")
	}
	return token, err
}

func (k svid) isSigned(ctx context.Context, s *Session) error {
	_, err := k.token(ctx, s)
	return err
}

// watched starts a watch of the keys on the shared instance.
func (k svid) watched(ctx context.Context, s *Session) (*watching, error) {
	i, err := s.having(ctx, k.ability)
	if err != nil {
		return nil, err
	}
	return s.watch(ctx, k.watch(i)), nil
}

func (k svid) keys(ctx context.Context, s *Session) (jws.Keys, error) {
	w, err := k.watched(ctx, s)
	if err != nil {
		return nil, err
	}
	defer w.close()
	text, err := w.first()
	if err != nil {
		return nil, err
	}
	return k.parse(text)
}

func (k svid) hasUsableKeys(ctx context.Context, s *Session) error {
	keys, err := k.keys(ctx, s)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, key := range keys {
		if key.KeyID == "" || seen[key.KeyID] {
			return fmt.Errorf("one of %d keys has the kid %.64q, which is not unique", len(keys), key.KeyID)
		}
		seen[key.KeyID] = true
	}
	return nil
}

// verified returns an SVID that a published key has signed, and its claims.
func (k svid) verified(ctx context.Context, s *Session) (parsed jws.Token, claims map[string]any, err error) {
	token, err := k.token(ctx, s)
	if err != nil {
		return parsed, nil, err
	}
	keys, err := k.keys(ctx, s)
	if err != nil {
		return parsed, nil, err
	}
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

func (k svid) verifies(ctx context.Context, s *Session) error {
	_, _, err := k.verified(ctx, s)
	return err
}

// claims returns a check of the claims of an SVID that verifies.
func (k svid) claims(judge func(s *Session, claims map[string]any) error) func(context.Context, *Session) error {
	return func(ctx context.Context, s *Session) error {
		_, claims, err := k.verified(ctx, s)
		if err != nil {
			return err
		}
		return judge(s, claims)
	}
}

func hasSubject(s *Session, claims map[string]any) error {
	if claims["sub"] != s.Kit.Identity.SPIFFEID {
		return fmt.Errorf("it is %.256q", fmt.Sprint(claims["sub"]))
	}
	return nil
}

func expires(_ *Session, claims map[string]any) error {
	seconds, ok := claims["exp"].(float64)
	if !ok || !jws.IsTime(seconds) {
		return fmt.Errorf("the claim exp is %.64q", fmt.Sprint(claims["exp"]))
	}
	if ends, now := jws.At(seconds), time.Now(); !ends.After(now) || ends.After(now.Add(svidLife+svidLeeway)) {
		return fmt.Errorf("it expires at %s; asked for was %s from now, %s", clock.Stamp(ends), svidLife, clock.Stamp(now))
	}
	return nil
}

func validNow(_ *Session, claims map[string]any) error {
	for _, name := range []string{"iat", "nbf"} {
		claim, there := claims[name]
		seconds, ok := claim.(float64)
		if there && (!ok || !jws.IsTime(seconds) || jws.At(seconds).After(time.Now().Add(svidLeeway))) {
			return fmt.Errorf("the claim %s is %.64q", name, fmt.Sprint(claim))
		}
	}
	return nil
}

func (k svid) refusesIdentity(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, k.ability)
	if err != nil {
		return err
	}
	if s.Kit.RefusedIdentity.SPIFFEID == "" {
		return needs("refused_identity.spiffe_id", "")
	}
	_, err = k.of(ctx, s, i, s.Kit.RefusedIdentity.SPIFFEID)
	return mustBe(err, ca.Denied, ca.Invalid)
}

func (k svid) unconfigured(ctx context.Context, s *Session) error {
	return unconfigured(ctx, s, k.ability)
}

func (k svid) atOnce(ctx context.Context, s *Session) error {
	if _, err := k.token(ctx, s); err != nil {
		return err
	}
	i, err := s.Ready()
	if err != nil {
		return err
	}
	return together(ctx, s.crowd, func() (sending, error) {
		return func(ctx context.Context) error { _, err := k.of(ctx, s, i, s.Kit.Identity.SPIFFEID); return err }, nil
	})
}

func (k svid) watchIsQuiet(ctx context.Context, s *Session) error {
	w, err := k.watched(ctx, s)
	if err != nil {
		return err
	}
	defer w.close()
	first, err := w.first()
	if err != nil {
		return err
	}
	another := func() { _, _ = k.keys(ctx, s) }
	switch disturbed := inTime(quiet, another, func() bool { return w.ended() || len(w.told) > 0 }); {
	case disturbed && len(w.told) > 0:
		if next := <-w.told; string(next) == string(first) {
			return errors.New("the same set came twice")
		}
	case disturbed:
		return fmt.Errorf("it ended with %w", orNone(w.err))
	}
	return nil
}

func (k svid) watchEnds(ctx context.Context, s *Session) error {
	i, err := s.having(ctx, k.ability)
	if err != nil {
		return err
	}
	return s.watchEnds(ctx, i, k.watch(i))
}
