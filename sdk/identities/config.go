package identities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config is whom a [Set] serves, with what, and how many.
type Config struct {
	// Manager has the authority and holds the trust bundles. Required.
	Manager *secret.Manager
	// Certificate is what each identity's certificate is asked for: its Name (default:
	// "default"), one authority of the Manager, KeyType, TTL, RenewRatio, and
	// RenewJitter, whose default is 0.1 here, as many are made at once. Its Identity is
	// that of each stream and is not set.
	Certificate secret.Spec
	// Bundles are the names of the Manager's trust bundles that every stream may have.
	// A certificate that no longer leads to a root of the first one is replaced.
	// Default: ROOTCA.
	Bundles []string

	// Identify says whose a stream is. Required.
	Identify Identify
	// Exchange is how a stream's token becomes the one that is sent. Default: it is
	// sent as it is.
	Exchange Exchange

	// Idle is how long the certificate of an identity is kept that has no stream any
	// more. Default: 10 minutes.
	Idle time.Duration
	// Limits bound all of it.
	Limits Limits

	// Observe is told what happens, for metrics: it must neither block nor call the
	// Set. Default: nobody is told.
	Observe func(secret.Event)
	// Now is the wall clock. Default: that of this machine.
	Now func() time.Time
	// Log never gets a key or a token. Default: silent.
	Log *slog.Logger
}

// Identify is how it is known whose a stream is. A token goes before the peer.
type Identify struct {
	// Verifier verifies tokens. Default: none, and then the authority does so by
	// signing with them or not.
	Verifier Verifier
	// Claimed returns what a token claims of itself: only what a certificate is asked
	// for with that very token. It is for authorities that look at the token
	// themselves; one that signs for anybody gives everybody what he claims. Not asked
	// where there is a Verifier.
	Claimed func(ca.Token) (Claim, error)
	// Peer returns the SPIFFE ID of a stream without a token by who is at the other
	// end of the socket; false for nobody's. It must not block. Default: nobody.
	Peer func(secret.Caller) (spiffeID string, ok bool)
	// Timeout bounds a verification. Default: 10 s.
	Timeout time.Duration
}

// Verifier finds out whose a token is. It is safe for concurrent use.
type Verifier interface {
	// Verify returns the token's owner, or an error of package ca: Unauthenticated
	// for a token that is not good, Unavailable where that could not be found out.
	Verify(context.Context, ca.Token) (Claim, error)
}

// Claim is the owner of a token: verified, or just what it says of itself.
type Claim struct {
	SPIFFEID string
	// Expiry is when the token ends; zero where that is not known. Nobody is taken at
	// his word for longer.
	Expiry time.Time
}

// Exchange is the token-exchange hook.
type Exchange struct {
	// Token returns the token to send for that of a stream, which is empty for a stream
	// that is known by its peer. Its context ends with the attempt. Default: the same.
	Token func(context.Context, ca.Token) (ca.Token, error)
	// Rejected is told of a token that the authority did not accept, before Token is
	// asked once more. It must not block. Default: nobody is told.
	Rejected func(ca.Token)
	// Timeout bounds an exchange. Default: 10 s.
	Timeout time.Duration
}

// Limits bound what a Set takes in; whom it turns away is told which limit that was.
type Limits struct {
	// Identities, those not verified yet included. Default: 10,000.
	Identities int
	// Streams of one identity. Default: 100.
	Streams int
	// InFlight is how many requests to the authority, and how many verifications, are
	// under way at once. Default: 16.
	InFlight int
	// Refused is how many tokens that were refused lately a process may have brought
	// before no further one of it is tried. Default: 16.
	Refused int
}

// checked returns the config with its defaults filled in.
func (c Config) checked() (Config, error) {
	c = c.withDefaults()
	spec := c.Certificate
	switch {
	case c.Manager == nil:
		return c, errors.New("crowd: Config.Manager is required")
	case len(spec.Authorities) != 1:
		return c, fmt.Errorf("crowd: Config.Certificate names %d authorities, one signs for all identities", len(spec.Authorities))
	case !spec.Identity.IsZero():
		return c, fmt.Errorf("crowd: Config.Certificate asks for %q; each stream has an identity of its own", spec.Identity)
	case slices.Contains(c.Bundles, spec.Name):
		return c, fmt.Errorf("crowd: %q is the name of the certificate and of a trust bundle", spec.Name)
	case c.Identify.Verifier == nil && c.Identify.Claimed == nil && c.Identify.Peer == nil:
		return c, fmt.Errorf("crowd: %w", errNoIdentity)
	case !(spec.RenewRatio > 0 && spec.RenewRatio < 1), !(spec.RenewJitter > 0 && spec.RenewJitter < 1), spec.TTL < 0:
		return c, fmt.Errorf("crowd: renew ratio %v and jitter %v must be more than 0 and less than 1, TTL %s 0 or more", spec.RenewRatio, spec.RenewJitter, spec.TTL)
	case c.Idle < 0, c.Limits.Identities < 0, c.Limits.Streams < 0, c.Limits.InFlight < 0, c.Limits.Refused < 0:
		return c, fmt.Errorf("crowd: idle time %s and limits %+v must not be negative", c.Idle, c.Limits)
	}
	return c, nil
}

func (c Config) withDefaults() Config {
	orElse(&c.Certificate.Name, "default")
	orElse(&c.Certificate.RenewRatio, 0.5)
	orElse(&c.Certificate.RenewJitter, 0.1)
	if len(c.Bundles) == 0 {
		c.Bundles = []string{"ROOTCA"}
	}
	orElse(&c.Identify.Timeout, 10*time.Second)
	orElse(&c.Exchange.Timeout, 10*time.Second)
	orElse(&c.Idle, 10*time.Minute)
	orElse(&c.Limits.Identities, 10_000)
	orElse(&c.Limits.Streams, 100)
	orElse(&c.Limits.InFlight, 16)
	orElse(&c.Limits.Refused, 16)
	if c.Observe == nil {
		c.Observe = func(secret.Event) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Exchange.Rejected == nil {
		c.Exchange.Rejected = func(ca.Token) {}
	}
	return c
}

func orElse[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}
