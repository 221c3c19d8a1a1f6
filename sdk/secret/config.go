package secret

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	defaultRenewRatio   = 0.5
	defaultRenewJitter  = 0.01
	defaultRootInterval = 5 * time.Minute
	defaultTimeout      = 30 * time.Second

	defaultFallbackAfter = 30 * time.Second
)

// Config says which secrets a [Manager] holds and who signs them. Its functions are
// called by several goroutines at once.
type Config struct {
	Secrets     []Spec
	Authorities []Authority

	// Admit tells whether caller may have the secret of that name; to whom it says
	// no, the name is unknown. It must not block. Default: everybody may.
	Admit func(caller Caller, name string) bool
	// Observe is told what happens, for metrics. It must neither block nor call the
	// Manager, and is called by several goroutines. Default: nobody is told.
	Observe func(Event)
	// Storage keeps what is held over a restart. Default: nothing is kept.
	Storage Storage
	// Keys makes the private keys. It is whoever set it who keeps them, so that a
	// Storage keeps none of them. Default: [pki.GenerateKey].
	Keys KeySource
	// Now is the wall clock. Default: that of this machine.
	Now func() time.Time
	// Log never gets a key or a token. Default: silent.
	Log *slog.Logger
}

// Spec is one secret: a key with its certificate, or a trust bundle.
type Spec struct {
	Name string
	Kind Kind
	// Authorities are names from [Config.Authorities]: those that may sign a KeyPair,
	// or all whose roots are united in a TrustBundle. The first one signs; the next is
	// asked while those before it have been unavailable for FallbackAfter, and never
	// where one said no. It must have told its roots by itself before: nobody gets a
	// certificate that its peers cannot verify.
	Authorities []string
	// FallbackAfter is how long an authority must have been asked in vain before the
	// next one is. Default: 30 s.
	FallbackAfter time.Duration

	// Identity is what a KeyPair's certificate is asked for.
	Identity pki.Identity
	// Anchor returns roots, from elsewhere than the authority, that a KeyPair's chain
	// has to lead to, besides the authority's own: those that its peers verify with.
	// It must not block; see the function [Anchor]. Default: none.
	Anchor func() *pki.Bundle
	// KeyType is the kind of a KeyPair's key. Default: ECDSA P-256.
	KeyType pki.KeyType
	// TTL is the lifetime asked for. Default: the authority decides.
	TTL time.Duration
	// RenewRatio is the part of the lifetime that is left when the rotation begins.
	// Default: 0.5.
	RenewRatio float64
	// RenewJitter is how far the ratio of one certificate may be drawn to either
	// side, so that the rotations of many are spread. Default: 0.01.
	RenewJitter float64
}

// Authority is a certificate authority with the rules for what it answers.
type Authority struct {
	Name string
	// Client signs. Where it is a [ca.RootWatcher] or a [ca.RootSource], too, its
	// roots are learned from that as well as from replies.
	Client ca.Client
	// Token returns the credential for the next request and is asked before each.
	// Default: none.
	Token func(context.Context) (ca.Bearer, error)
	// TokenRejected is told of a token that the authority did not accept, before
	// Token is asked once more. It must not block. Default: nobody is told.
	TokenRejected func(ca.Token)
	// Names is how close a certificate's names must come to those asked for.
	// Default: exact.
	Names pki.NameCheck
	// AcceptLongerTTL lets certificates live longer than was asked. Default: false.
	AcceptLongerTTL bool
	// PinnedRoots are the only roots that are taken from this authority. Default:
	// any.
	PinnedRoots *pki.Bundle
	// RootOverlap is how long a root stays that the authority dropped; a pointer to
	// zero means not at all. Default: until the last certificate held of this
	// authority ends.
	RootOverlap *time.Duration
	// RootInterval is the time between two questions to a [ca.RootSource]. Default:
	// 5 minutes.
	RootInterval time.Duration
	// Timeout ends each call of Client or Token. Default: 30 seconds.
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
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (s Spec) withDefaults() Spec {
	if s.RenewRatio == 0 {
		s.RenewRatio = defaultRenewRatio
	}
	if s.RenewJitter == 0 {
		s.RenewJitter = defaultRenewJitter
	}
	if s.FallbackAfter == 0 {
		s.FallbackAfter = defaultFallbackAfter
	}
	return s
}

func (a Authority) withDefaults() Authority {
	if a.RootInterval == 0 {
		a.RootInterval = defaultRootInterval
	}
	if a.Timeout == 0 {
		a.Timeout = defaultTimeout
	}
	if a.TokenRejected == nil {
		a.TokenRejected = func(ca.Token) {}
	}
	return a
}

// check returns an error for an Authority that cannot work.
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

// check returns an error for a Spec (with its defaults) that cannot be had.
func (s Spec) check() error {
	switch {
	case s.Name == "":
		return errors.New("a secret has no name")
	case s.Kind == KeyPair:
		return s.checkKeyPair()
	case s.Kind != TrustBundle:
		return fmt.Errorf("secret %q: its kind is %v; use key-pair or trust-bundle", s.Name, s.Kind)
	case len(s.Authorities) == 0:
		return fmt.Errorf("secret %q: a trust bundle needs at least one authority", s.Name)
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
	case !(s.RenewRatio > 0 && s.RenewRatio < 1): // not NaN either
		return fmt.Errorf("secret %q: renew ratio is %v; use more than 0 and less than 1", s.Name, s.RenewRatio)
	case !(s.RenewJitter > 0 && s.RenewJitter < 1):
		return fmt.Errorf("secret %q: renew jitter is %v; use more than 0 and less than 1", s.Name, s.RenewJitter)
	}
	return nil
}
