package secret

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/trace"
)

const (
	defaultRenewRatio   = 0.5
	defaultRenewJitter  = 0.1
	defaultRootInterval = 5 * time.Minute
	defaultTimeout      = 30 * time.Second

	defaultFallbackAfter = 30 * time.Second
)

// Config selects the secrets that a [Manager] holds and who signs them. The Manager calls its
// functions from several goroutines at once.
type Config struct {
	Secrets     []Spec
	Authorities []Authority

	// Admit reports whether caller may have the secret name. If not, the name is unknown
	// to the caller. Admit must not block. Default: every caller may.
	Admit func(caller Caller, name string) bool
	// Observe receives events, for metrics. It must be safe for concurrent use and must
	// neither block nor call the Manager. Default: events are dropped.
	Observe func(Event)
	// RootAcknowledged reports whether all who are served one of the trust bundles have a version
	// with the root of that fingerprint. A certificate that replaces another waits 5 seconds
	// at most for its new root to be everywhere. It must not block. Default: they do.
	RootAcknowledged func(bundles []string, root string) bool
	// Storage keeps held secrets across a restart. Default: nothing is kept.
	Storage Storage
	// Keys makes the private keys. The KeySource then keeps them; a Storage stores none of
	// them. Default: [pki.GenerateKey].
	Keys KeySource
	// Tracer follows each attempt to get a certificate. Default: none.
	Tracer trace.Tracer
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
	// Log receives no key and no token. Its handler may call the Manager's Peek, Has and
	// Status; other methods may wait for the very goroutine that logs. Default: [slog.Default].
	Log *slog.Logger
}

// Spec describes one secret: a private key with its certificate chain, or a trust bundle.
type Spec struct {
	Name string
	Kind Kind
	// Authorities are names from [Config.Authorities]: for a KeyPair those that may sign
	// it, for a TrustBundle those whose roots form the union. The first one signs. The
	// Manager asks the next after those before it have been unavailable for FallbackAfter,
	// never after a refusal. A fallback must have published its roots beforehand, so that
	// peers can verify its certificates.
	Authorities []string
	// FallbackAfter is how long an authority must stay unavailable before the Manager asks
	// the next one. Default: 30 s.
	FallbackAfter time.Duration

	// Identity is the set of names to request for a KeyPair. A TrustBundle may have one,
	// too: if an authority of it returns its roots only with certificates and signs no
	// KeyPair, the Manager orders certificates of these names for their roots, and drops
	// their keys.
	Identity pki.Identity
	// Anchor returns further roots that a KeyPair's chain must lead to, besides its
	// authority's own: those that its peers verify with. It must not block; see the
	// function [Anchor]. Default: none.
	Anchor func() *pki.Bundle
	// KeyType is the type of a KeyPair's key. Default: ECDSA P-256.
	KeyType pki.KeyType
	// TTL is the requested lifetime. Default: the authority decides.
	TTL time.Duration
	// RenewRatio is the fraction of the lifetime that remains when rotation begins.
	// Default: 0.5.
	RenewRatio float64
	// RenewJitter is the most by which a certificate's ratio deviates from RenewRatio in
	// either direction, to spread rotations. Default: 0.1.
	RenewJitter float64
}

// Authority is a certificate authority with the rules for its replies.
type Authority struct {
	Name string
	// Client signs. If it is also a [ca.RootWatcher] or a [ca.RootSource], the Manager
	// learns roots from that as well as from replies.
	Client ca.Client
	// Token returns the credential for the next request; the Manager calls it before each.
	// Default: none.
	Token func(context.Context) (ca.Bearer, error)
	// TokenRejected receives a token that the authority rejected, before Token is called
	// once more. It must not block. Default: none.
	TokenRejected func(ca.Token)
	// Names is how closely a certificate's names must match the requested ones. Default: as
	// the [ca.Facts] of the reply state, else exact.
	Names *pki.NameCheck
	// AcceptLongerTTL accepts certificates that outlive the requested TTL. Default: as the
	// [ca.Facts] of the reply state, else false.
	AcceptLongerTTL *bool
	// Requester describes this program to the authority, for its audit log, such as "agent on
	// host-7": see [ca.SignRequest]. The name of the secret is added. Default: none.
	Requester string
	// PinnedRoots are the only roots accepted from this authority. Default: any.
	PinnedRoots *pki.Bundle
	// RootOverlap is how long a root stays after the authority drops it; a pointer to zero
	// removes it at once. Default: until the last certificate held from this authority
	// expires.
	RootOverlap *time.Duration
	// RootInterval is the interval between calls to a [ca.RootSource]. Default: 5 minutes.
	RootInterval time.Duration
	// Timeout limits each call of Client or Token. Default: 30 seconds.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Admit == nil {
		c.Admit = func(Caller, string) bool { return true }
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

func (s Spec) withDefaults() Spec {
	s.RenewRatio = cmp.Or(s.RenewRatio, defaultRenewRatio)
	s.RenewJitter = cmp.Or(s.RenewJitter, defaultRenewJitter)
	s.FallbackAfter = cmp.Or(s.FallbackAfter, defaultFallbackAfter)
	return s
}

func (a Authority) withDefaults() Authority {
	a.RootInterval = cmp.Or(a.RootInterval, defaultRootInterval)
	a.Timeout = cmp.Or(a.Timeout, defaultTimeout)
	if a.TokenRejected == nil {
		a.TokenRejected = func(ca.Token) {}
	}
	return a
}

func (a *Authority) pinned(cert *x509.Certificate) bool {
	return a.PinnedRoots == nil || a.PinnedRoots.Contains(cert)
}

// answersAs reports whether both have the same client and the same rules for its replies.
func (a *Authority) answersAs(b *Authority) bool {
	return same(a.Client, b.Client) && sameValue(a.Names, b.Names) && sameValue(a.AcceptLongerTTL, b.AcceptLongerTTL) && samePins(a.PinnedRoots, b.PinnedRoots)
}

// sameValue reports whether both are nil or point to the same value.
func sameValue[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// Accepts returns the rules for a reply with these facts: how closely its names must match, and
// whether it may outlive the requested TTL.
func (a *Authority) Accepts(facts ca.Facts) (names pki.NameCheck, longer bool) {
	switch facts.NameMatch {
	case ca.MatchTrustDomain:
		names = pki.TrustDomainName
	case ca.MatchAny:
		names = pki.AnyName
	}
	if a.Names != nil {
		names = *a.Names
	}
	if longer = facts.FixedLifetime; a.AcceptLongerTTL != nil {
		longer = *a.AcceptLongerTTL
	}
	return names, longer
}

func samePins(a, b *pki.Bundle) bool { return (a == nil) == (b == nil) && a.Equal(b) }

// check returns an error if the Authority cannot work.
func (a Authority) check() error {
	switch {
	case a.Name == "":
		return errors.New("an authority has no name")
	case a.Client == nil:
		return fmt.Errorf("authority %q has no client", a.Name)
	case a.RootOverlap != nil && *a.RootOverlap < 0:
		return fmt.Errorf("authority %q: root overlap is %s; use 0 or more", a.Name, *a.RootOverlap)
	case a.RootInterval < 0:
		return fmt.Errorf("authority %q: root interval is %s; use more than 0", a.Name, a.RootInterval)
	case a.Timeout < 0:
		return fmt.Errorf("authority %q: timeout is %s; use more than 0", a.Name, a.Timeout)
	}
	return nil
}

// check returns an error if the Spec, with its defaults set, is invalid.
func (s Spec) check() error {
	switch {
	case s.Name == "":
		return errors.New("a secret has no name")
	case s.Kind != KeyPair && s.Kind != TrustBundle:
		return fmt.Errorf("secret %q: its kind is %v; use key-pair or trust-bundle", s.Name, s.Kind)
	case s.Kind == TrustBundle && len(s.Authorities) == 0:
		return fmt.Errorf("secret %q: a trust bundle needs at least one authority", s.Name)
	case s.Kind == KeyPair || !s.Identity.IsZero():
		return s.checkKeyPair()
	}
	return nil
}

func (s Spec) checkKeyPair() error {
	_, err := pki.ParseKeyType(string(s.KeyType))
	switch {
	case err != nil:
		return fmt.Errorf("secret %q: %w", s.Name, err)
	case len(s.Authorities) == 0:
		return fmt.Errorf("secret %q: a key pair needs an authority that signs it", s.Name)
	case len(slices.Compact(slices.Sorted(slices.Values(s.Authorities)))) != len(s.Authorities):
		return fmt.Errorf("secret %q: an authority is there twice: %q", s.Name, s.Authorities)
	case s.FallbackAfter < 0:
		return fmt.Errorf("secret %q: fallback after %s; use more than 0", s.Name, s.FallbackAfter)
	case s.Identity.IsZero():
		return fmt.Errorf("secret %q: it has no identity; give a SPIFFE ID, a DNS name or an IP address", s.Name)
	case s.TTL < 0:
		return fmt.Errorf("secret %q: TTL is %s; use 0 or more", s.Name, s.TTL)
	case !(s.RenewRatio > 0 && s.RenewRatio < 1): // rejects NaN as well
		return fmt.Errorf("secret %q: renew ratio is %v; use more than 0 and less than 1", s.Name, s.RenewRatio)
	case !(s.RenewJitter > 0 && s.RenewJitter < 1):
		return fmt.Errorf("secret %q: renew jitter is %v; use more than 0 and less than 1", s.Name, s.RenewJitter)
	}
	return nil
}
