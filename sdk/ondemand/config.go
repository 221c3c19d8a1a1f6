package ondemand

import (
	"context"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config configures a [Set].
type Config struct {
	// Manager provides the authorities and verifies their replies. Required.
	Manager *secret.Manager
	// Rules decide which names get a certificate. A name belongs to the rule with the most
	// specific match.
	Rules []Rule
	// Storage keeps the certificates over restarts. Default: nothing is kept.
	Storage Storage

	// Covering returns a certificate that the program holds for other reasons and that
	// covers the DNS name, or nil: see [Rule.Cover]. It must not block. Default: none.
	Covering func(name string) *secret.Item
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
	Patterns Patterns
	// Certificate describes each certificate: one authority of the Manager, KeyType, TTL,
	// RenewRatio and RenewJitter. Its Name is set to that of the rule; its Identity must be
	// empty.
	Certificate secret.Spec

	// Ask decides whether a name that matches may have a certificate. It is asked before
	// each order, renewals too. Default: each name may.
	Ask Decider
	// Budget bounds the orders for new names. Default: none.
	Budget Budget
	// Account is the account that the authority counts orders for; it is passed to the Budget.
	Account string

	// Names is the most names that hold a certificate or have an order. Default: 10,000.
	Names int
	// Evict makes room for a new name by dropping the one that has been unused for longest.
	// It suits a private CA, where a certificate costs nothing. Default: a new name is
	// refused when Names is reached.
	Evict bool
	// InFlight is the number of concurrent orders, and of concurrent questions to Ask.
	// Default: 16.
	InFlight int
	// Queue is the most names that wait for a decision or their first certificate.
	// Default: 1,000.
	Queue int
	// Wait is how long a new name is not ready, after its first subscription. It is then
	// refused while the order goes on. Default: 8 s.
	Wait time.Duration
	// Idle is how long the certificate of a name without a subscription is renewed.
	// Default: 30 days.
	Idle time.Duration
	// Cover serves a valid certificate of Config.Covering under the name, in place of an
	// order. Default: it is not looked for.
	Cover bool
}

// Patterns select names.
type Patterns interface {
	// Match reports whether a name matches, and how specifically: the higher rank wins. The
	// name is in lower case and has DNS syntax. Match must not block.
	Match(name string) (rank int, ok bool)
}

// Decider decides whether a name may have a certificate. It bounds its calls in time.
type Decider interface {
	// Allowed returns whether the name may have a certificate, or an error if that could
	// not be determined.
	Allowed(ctx context.Context, name string) (bool, error)
}

// Budget bounds orders. It is safe for concurrent use and does not block.
type Budget interface {
	// Take takes the order of a certificate for name from the budget; exactSet are all names
	// in the certificate. If the budget is used up it takes nothing and returns an error of
	// package ca: ResourceExhausted, with a RetryAfter.
	Take(now time.Time, name string, exactSet []string, account string) error
	// Failed records that an order failed.
	Failed(name string)
}

// Storage keeps the certificates of a [Set] over restarts. The Set never calls it twice at once
// for one name.
type Storage interface {
	// Index returns what is held, without decrypting it.
	Index(context.Context) ([]secret.Entry, error)
	// Load returns the record of a name, or the zero Record if there is none.
	Load(ctx context.Context, name string) (secret.Record, error)
	// Store replaces the record of e.Name. It is durable when Store returns.
	Store(ctx context.Context, e secret.Entry, r secret.Record) error
	// Delete removes the record of a name, if there is one.
	Delete(ctx context.Context, name string) error
}
