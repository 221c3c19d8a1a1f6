package witsvid

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const defaultMaxAhead = 5 * time.Minute

// VerifierConfig configures a [Verifier].
type VerifierConfig struct {
	// MaxAhead is how far ahead a proof may expire: 1 second to 1 hour. Proofs are remembered for so
	// long. Default: 5 minutes.
	MaxAhead time.Duration
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
}

// Verifier judges WIT-SVIDs with proofs of possession. It remembers each proof until that ends, 256 of
// each sender and 65,536 more of each trust domain, whose senders share them; 1,024 senders of a trust
// domain at a time. The memory is that of one process: where several verify for one audience, each of
// them accepts a proof once. Its methods are safe for concurrent use.
type Verifier struct {
	cfg VerifierConfig

	mu      sync.Mutex
	domains map[string]*domain
}

// domain is a trust domain.
type domain struct {
	keys    *tokensource.Published
	replays *replays
}

// NewVerifier returns a Verifier without keys, which are set with [Verifier.SetKeys].
func NewVerifier(cfg VerifierConfig) (*Verifier, error) {
	cfg.MaxAhead = cmp.Or(cfg.MaxAhead, defaultMaxAhead)
	if cfg.MaxAhead < time.Second || cfg.MaxAhead > time.Hour {
		return nil, fmt.Errorf("witsvid: MaxAhead is %s: must be 1s to 1h", cfg.MaxAhead)
	}
	if cfg.Now == nil {
		cfg.Now = clock.Wall
	}
	return &Verifier{cfg: cfg, domains: map[string]*domain{}}, nil
}

// SetKeys replaces the keys of a trust domain with a JWK set, as FetchWITBundles of the Workload API has
// it. A set without keys revokes all of them. A set that cannot be read is an error and changes nothing.
func (v *Verifier) SetKeys(trustDomain string, jwks []byte) error {
	if err := pki.CheckTrustDomain(trustDomain); err != nil {
		return err
	}
	next, err := kind.ReadBundle(jwks)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.domains[trustDomain]
	if d == nil {
		d = &domain{replays: newReplays()}
		v.domains[trustDomain] = d
	}
	d.keys = next
	return nil
}

// Identity is who sent a request.
type Identity struct {
	// ID is the SPIFFE ID.
	ID string
	// Ends is when the WIT-SVID expires.
	Ends time.Time
}

// Verify judges the WIT-SVID and the proof of one request: the WIT-SVID is signed by a key of its trust
// domain, is valid now and confirms the key that signed the proof, by the algorithm that it names; the
// proof is for this WIT-SVID and for the audience alone, has not expired, expires soon and was not seen
// before. Clocks may differ by 30 seconds, but no WIT-SVID counts beyond its end. An error is
// [ca.ErrInvalid], [ca.ErrUnavailable] while the keys of the trust domain are not known or, after the
// clock was set back, whether the proof was used before, or [ca.ErrRateLimited] if the sender has too many proofs that are remembered; it quotes no token.
func (v *Verifier) Verify(wit, proof ca.Token, audience string) (Identity, error) {
	now := rotation.Now(v.cfg.Now())
	id, err := v.verify(wit, proof, audience, now)
	switch {
	case err == nil:
		return id, nil
	case errors.As(err, new(*ca.Error)):
	default:
		err = ca.Errorf(ca.Invalid, "the WIT-SVID is refused: %w", err)
	}
	return Identity{}, redact.Error(redact.Error(err, wit), proof)
}

func (v *Verifier) verify(wit, proof ca.Token, audience string, now rotation.Time) (Identity, error) {
	if audience == "" || len(audience) > maxAudience {
		return Identity{}, ca.Errorf(ca.Invalid, "the audience is not 1 to %d bytes", maxAudience)
	}
	id, d, key, err := v.verifyWIT(wit, now)
	if err != nil {
		return Identity{}, err
	}
	c, times, err := readProof(proof, key)
	if err == nil {
		err = c.check(wit, audience)
	}
	if err == nil {
		err = times.CheckTimes(now.Wall, tokensource.Leeway)
	}
	if err == nil && times.Ends().After(now.Wall.Add(v.cfg.MaxAhead+tokensource.Leeway)) {
		err = fmt.Errorf("it ends at %s, more than %s ahead", clock.Stamp(times.Ends()), v.cfg.MaxAhead)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("its proof: %w", err)
	}
	return id, d.replays.take(id.ID, c.ID, times.Ends().Add(tokensource.Leeway), now)
}

// verifyWIT returns the identity of a WIT-SVID, its trust domain and the key that it is bound to.
func (v *Verifier) verifyWIT(wit ca.Token, now rotation.Time) (id Identity, d *domain, key jose.JSONWebKey, err error) {
	parsed, err := kind.Parse(wit)
	if err != nil {
		return id, nil, key, err
	}
	if parsed.KeyID == "" {
		return id, nil, key, errors.New("it names no key")
	}
	d, keys, err := v.domainOf(parsed.UnverifiedSubject())
	if err != nil {
		return id, nil, key, err
	}
	payload, err := parsed.Payload(keys.Keys.Find(parsed.KeyID, parsed.Algorithm))
	if err != nil {
		return id, nil, key, err
	}
	c, err := tokensource.ReadClaims(payload, now.Wall)
	if err != nil {
		return id, nil, key, err
	}
	key, err = confirmed(payload)
	return Identity{c.Subject, c.Ends()}, d, key, err
}

// domainOf returns the trust domain that an unverified subject claims and its keys. These verify the
// very payload with that subject: a decoder that finds two subjects refuses it.
func (v *Verifier) domainOf(subject string) (*domain, *tokensource.Published, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(subject, "spiffe://"), "/")
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.domains[name]
	if d == nil {
		return nil, nil, ca.Errorf(ca.Unavailable, "the keys of the trust domain %.256q are not known", name)
	}
	return d, d.keys, nil
}
