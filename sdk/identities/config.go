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

// Config configures a [Set].
type Config struct {
	// Manager provides the authority and holds the trust bundles. Required.
	Manager *secret.Manager
	// Certificate describes the certificate of each identity: its Name (default:
	// "default"), one authority of the Manager, KeyType, TTL, RenewRatio, and RenewJitter.
	// The jitter defaults to 0.1 here, as many certificates are issued at once. Identity
	// must be empty: each stream has its own.
	Certificate secret.Spec
	// Bundles are the Manager's trust bundles that every stream may have. A certificate
	// that no longer chains to a root of the first is replaced. Default: ROOTCA.
	Bundles []string

	// Identify configures how to identify a stream. Required.
	Identify Identify
	// Exchange exchanges a stream's token for the one to send. Default: the token is sent
	// unchanged.
	Exchange Exchange

	// Idle is how long to keep the certificate of an identity without streams. Default: 10
	// minutes.
	Idle time.Duration
	// Limits bound the Set.
	Limits Limits

	// Observe receives events, for metrics. It must neither block nor call the Set.
	// Default: events are dropped.
	Observe func(secret.Event)
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
	// Log receives no key and no token. Its handler may call the Set, except Close, and the
	// Manager, as described in its Config. Default: [slog.Default].
	Log *slog.Logger
}

// Identify configures how to find the identity of a stream. A token takes precedence over the
// peer.
type Identify struct {
	// Verifier verifies tokens. Default: none; the authority then verifies a token by
	// signing with it or refusing.
	Verifier Verifier
	// Claimed returns what a token claims; the claim is used only to request a certificate
	// with that same token. It is for authorities that check the token themselves: one
	// that signs for any token would grant every claim. Not called if there is a Verifier.
	Claimed func(ca.Token) (Claim, error)
	// Peer returns the SPIFFE ID for a stream without a token, from the process at the
	// other end of the socket; false if it has none. It must not block. Default: no peer
	// has one.
	Peer func(secret.Caller) (spiffeID string, ok bool)
	// Timeout limits a verification. Default: 10 s.
	Timeout time.Duration
}

// Verifier verifies tokens and returns their owners. It is safe for concurrent use.
type Verifier interface {
	// Verify returns the token's owner, or an error of package ca: Unauthenticated for an
	// invalid token, Unavailable if the token could not be checked.
	Verify(context.Context, ca.Token) (Claim, error)
}

// Claim is the owner of a token, verified or merely claimed.
type Claim struct {
	SPIFFEID string
	// Expiry is when the token expires; zero if unknown. No claim is trusted for longer.
	Expiry time.Time
}

// Exchange is the token-exchange hook.
type Exchange struct {
	// Token returns the token to send for a stream's token, which is empty if the stream
	// was identified by its peer. Its context ends with the attempt. Default: the same
	// token. A call that ignores its context keeps a goroutine and one of
	// Limits.InFlight places for exchanges until it returns.
	Token func(context.Context, ca.Token) (ca.Token, error)
	// Rejected receives a token that the authority rejected, before Token is called once
	// more. It must not block. Default: none.
	Rejected func(ca.Token)
	// Timeout limits an exchange. Default: 10 s.
	Timeout time.Duration
}

// Limits bound what a Set accepts. The error for a rejected stream names the limit.
type Limits struct {
	// Identities includes those not yet verified. Default: 10,000.
	Identities int
	// Streams is per identity, of those that [Set.Join] admits. Default: 100.
	Streams int
	// InFlight is the number of concurrent requests to the authority, and of concurrent
	// verifications. Default: 16.
	InFlight int
	// Refused is how many tokens of one process (uid and pid) the authority or the Verifier
	// may have refused in the last 2 minutes. Then the process' further tokens are rejected
	// untried, and those not tried yet with them. Tokens being tried count as well: more wait
	// for them. Default: 16.
	Refused int
	// RefusedPerUser is the same for all processes of one uid. Processes with the same uid
	// can thus keep each other's first tokens out, but not streams that were verified, nor a process
	// of which a token was verified in the last hour: its refused tokens count for itself alone.
	// Default: 4 times Refused.
	RefusedPerUser int
}

// checked returns the config with defaults set, or an error if it is invalid.
func (c Config) checked() (Config, error) {
	c = c.withDefaults()
	spec := c.Certificate
	switch {
	case c.Manager == nil:
		return c, errors.New("identities: Config.Manager is required")
	case len(spec.Authorities) != 1:
		return c, fmt.Errorf("identities: Config.Certificate names %d authorities, one signs for all identities", len(spec.Authorities))
	case !spec.Identity.IsZero():
		return c, fmt.Errorf("identities: Config.Certificate asks for %q; each stream has an identity of its own", spec.Identity)
	case slices.Contains(c.Bundles, spec.Name):
		return c, fmt.Errorf("identities: %q is the name of the certificate and of a trust bundle", spec.Name)
	case c.Identify.Verifier == nil && c.Identify.Claimed == nil && c.Identify.Peer == nil:
		return c, fmt.Errorf("identities: %w", errNoIdentity)
	case !(spec.RenewRatio > 0 && spec.RenewRatio < 1), !(spec.RenewJitter > 0 && spec.RenewJitter < 1), spec.TTL < 0:
		return c, fmt.Errorf("identities: renew ratio %v and jitter %v must be more than 0 and less than 1, TTL %s 0 or more", spec.RenewRatio, spec.RenewJitter, spec.TTL)
	case c.Idle < 0, c.Limits.Identities < 0, c.Limits.Streams < 0, c.Limits.InFlight < 0, c.Limits.Refused < 0, c.Limits.RefusedPerUser < 0:
		return c, fmt.Errorf("identities: idle time %s and limits %+v must not be negative", c.Idle, c.Limits)
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
	orElse(&c.Limits.RefusedPerUser, 4*c.Limits.Refused)
	if c.Observe == nil {
		c.Observe = func(secret.Event) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.Default()
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
