package ondemand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config configures a [Set].
type Config struct {
	// Manager provides the authorities and verifies their replies. Required.
	Manager *secret.Manager
	// Rules decide which names get a certificate. A name belongs to the rule with the most
	// specific match.
	Rules []Rule
	// Storage keeps the certificates over restarts. If it is a [SharedStorage], the Sets of
	// several machines share them. Default: nothing is kept.
	Storage Storage

	// Uses keeps when names were last used, so that a restart does not begin Rule.Idle anew.
	// Default: stored names count as used at the start.
	Uses Uses

	// Reserved reports whether another source serves a name, as asked for or in lower case; it
	// is then unknown here. It must not block. Default: none is.
	Reserved func(name string) bool
	// Covering has the secrets of [Rule.Cover]. It is asked without a caller. Default: none.
	Covering secret.Source
	// Observe receives events, for metrics; Event.Secret is the name of the rule. It must
	// neither block nor call the Set. Default: events are dropped.
	Observe func(secret.Event)
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
	// Log receives a line for each order, and no key. Its handler must not call Close.
	// Default: [slog.Default].
	Log *slog.Logger
}

// Rule selects names that get a certificate on demand, and bounds what they cost.
type Rule struct {
	// Name identifies the rule in logs, metrics and status. Required, and unique in a Set.
	Name string
	// Patterns select the names. Required.
	Patterns *names.Patterns
	// Certificate describes each certificate: one authority of the Manager, KeyType, TTL,
	// RenewRatio and RenewJitter. Its Name is set to that of the rule; its Identity must be
	// empty.
	Certificate secret.Spec

	// Ask decides whether a name that matches may have a certificate. It is asked before
	// each order, renewals too. Default: each name may.
	Ask ask.Decider
	// Budget bounds the orders for new names, and those for renewals after a refused one.
	// Default: none.
	Budget Budget
	// Account is the account that the authority counts orders for; it is passed to the Budget.
	Account string

	// Names is the most names that hold a certificate or have an order. Default: 10,000.
	Names int
	// Evict makes room for a new name by dropping the one that has been unused for longest.
	// It suits a private CA, where a certificate costs nothing. Default: a new name is
	// refused when Names is reached.
	Evict bool
	// InFlight is the most concurrent orders. All rules together have at most four times as many
	// as the rule with the most, beside two for each; while others have many, a rule gets as many
	// as are left. Default: 16.
	InFlight int
	// Queue is the most names that wait for the order of their first certificate; those of all
	// rules are bounded as orders are. Default: 1,000.
	Queue int
	// Wait is how long a new name is not ready, after its first subscription. It is then
	// refused while the order goes on. A name whose certificate is yet to be read from
	// Config.Storage may be so for a minute. Default: 8 s.
	Wait time.Duration
	// Idle is how long the certificate of a name without a subscription is renewed.
	// Default: 30 days.
	Idle time.Duration
	// Cover names secrets of Config.Covering, such as a certificate for a wildcard. One that is
	// valid and is for the name is served under it in place of an order, for as long as it is
	// valid; Names bounds the names that are served so, too. Default: none.
	Cover []string
}

// recaller is a decider that remembers its answers, such as an [ask.Memory].
type recaller interface {
	Recall(name string) (allowed, known bool)
}

// Budget bounds orders. It is safe for concurrent use and does not block.
type Budget interface {
	// Take takes the order of a certificate for name from the budget; exactSet are all names
	// in the certificate. If the budget is used up it takes nothing and returns an error of
	// package ca: ResourceExhausted, with a RetryAfter.
	Take(now time.Time, name string, exactSet []string, account string) error
	// Refund takes a Take back, as the order was not sent.
	Refund(now time.Time, name string, exactSet []string, account string)
	// Failed records that the authority refused an order, or that its certificate was wrong.
	Failed(name string)
}

// Storage keeps the certificates of a [Set] over restarts. It is safe for concurrent use. The Set
// waits for a Delete before it stores the name again, and may load a name during a Store.
type Storage interface {
	// Index returns what is held, without decrypting it.
	Index(context.Context) ([]secret.Entry, error)
	// Load returns the record of a name, or the zero Record if there is none. An error that says
	// nothing about the record, as of a disk that is away, has the reason [ca.Unavailable] or
	// [ca.Deadline]; a record with other errors is given up, and its name ordered again.
	Load(ctx context.Context, name string) (secret.Record, error)
	// Store replaces the record of e.Name. It is durable when Store returns.
	Store(ctx context.Context, e secret.Entry, r secret.Record) error
	// Delete removes the record of a name, if there is one.
	Delete(ctx context.Context, name string) error
}

// SharedStorage is a Storage that the Sets of several machines share, which serve the same names. A Set
// claims a name before it changes the record, and reads the record once it has the claim: another Set may
// have renewed the certificate, or have left an order to continue. Index need not succeed at the start;
// while it fails with [ca.Unavailable] or [ca.Deadline], held certificates are served and Changes
// reports the rest later.
type SharedStorage interface {
	Storage
	// Claim claims a name for this Set. While another has it, the error wraps [secret.ErrClaimed];
	// other errors mean that this is not known. A claim that its holder has stopped to keep, as its
	// machine is down, runs out after a time of at most 15 s. The observer measures that time by its
	// own monotonic clock; the clocks of two machines are never compared. The Store and the Delete of
	// a name, and its Load after Claim, come in the order of its claims.
	Claim(ctx context.Context, name string) (secret.Claim, error)
	// Changes calls changed for each record that another Set has stored or deleted, within a second
	// or two, until ctx ends or the storage fails. What has changed since Index or the last call of
	// Changes comes first; if Index has not succeeded, that is each record. Changes of the Set
	// itself and records that are as before may be reported, too. Of a deleted record, e has the
	// name alone. changed does not block. One call runs at a time; the Set calls again after an
	// error.
	Changes(ctx context.Context, changed func(e secret.Entry, deleted bool)) error
}

const (
	defaultNames    = 10_000
	defaultInFlight = 16
	defaultQueue    = 1000
	defaultWait     = 8 * time.Second
	defaultIdle     = 30 * 24 * time.Hour
)

func (c Config) withDefaults() Config {
	if c.Observe == nil {
		c.Observe = func(secret.Event) {}
	}
	if c.Reserved == nil {
		c.Reserved = func(string) bool { return false }
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// checkedRules returns the rules with their defaults set, or an error if one is invalid.
func checkedRules(rules []Rule) ([]Rule, error) {
	used := map[string]bool{}
	var all []Rule
	for _, r := range rules {
		r = r.withDefaults()
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
		if used[r.Name] {
			return nil, fmt.Errorf("rule %q: the name is used twice", r.Name)
		}
		used[r.Name] = true
		all = append(all, r)
	}
	return all, nil
}

func (r Rule) withDefaults() Rule {
	r.Certificate.Name, r.Certificate.Kind = r.Name, secret.KeyPair
	orElse(&r.Certificate.RenewRatio, 0.5)
	orElse(&r.Certificate.RenewJitter, 0.1)
	orElse(&r.Names, defaultNames)
	orElse(&r.InFlight, defaultInFlight)
	orElse(&r.Queue, defaultQueue)
	orElse(&r.Wait, defaultWait)
	orElse(&r.Idle, defaultIdle)
	return r
}

func (r Rule) check() error {
	spec := r.Certificate
	_, err := pki.ParseKeyType(string(spec.KeyType))
	switch {
	case r.Name == "":
		return errors.New("it has no name")
	case r.Patterns == nil:
		return errors.New("it has no patterns")
	case err != nil:
		return err
	case len(spec.Authorities) != 1:
		return fmt.Errorf("it names %d authorities; one signs for all its names", len(spec.Authorities))
	case !spec.Identity.IsZero():
		return fmt.Errorf("its certificate has the identity %q; each name is an identity of its own", spec.Identity)
	case !(spec.RenewRatio > 0 && spec.RenewRatio < 1), !(spec.RenewJitter > 0 && spec.RenewJitter < 1), spec.TTL < 0:
		return fmt.Errorf("renew ratio %v and jitter %v must be more than 0 and less than 1, TTL %s 0 or more", spec.RenewRatio, spec.RenewJitter, spec.TTL)
	case r.Names < 0, r.InFlight < 0, r.Queue < 0, r.Wait < 0, r.Idle < 0:
		return fmt.Errorf("names %d, in flight %d, queue %d, wait %s and idle %s must not be negative", r.Names, r.InFlight, r.Queue, r.Wait, r.Idle)
	}
	return nil
}

func orElse[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}
