package signing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
)

// Config has the settings that all doors of a cluster share.
type Config struct {
	// Cluster is the verified name of the cluster, for [ra.Subject]. Required.
	Cluster string
	// Issuer has the engine's doors of the signers or authorities. Required.
	Issuer ra.Issuer
	// Now is the wall clock. Default: the system's.
	Now func() time.Time
	// Observe receives each outcome, for metrics. It must not block. Default: none.
	Observe func(Event)
	// Log is for operators. Default: [slog.Default].
	Log *slog.Logger
}

// Event is an outcome. It has few different texts, and none comes from a request.
type Event struct {
	// Signer is a signer or an authority of the configuration. It is empty if the request names
	// another one.
	Signer string
	// Result is one of the constants below.
	Result string
}

// The results of an [Event].
const (
	ResultApproved    = "approved"
	ResultIssued      = "issued"
	ResultDenied      = "denied"      // final
	ResultFailed      = "failed"      // final
	ResultPending     = "pending"     // the request comes back
	ResultUndelivered = "undelivered" // the API server did not accept the certificate
	ResultNotReady    = "not ready"   // the issuer
)

// Checked returns the settings with their defaults, or an error if a required one is missing.
func (c Config) Checked() (Config, error) {
	if c.Cluster == "" || c.Issuer == nil {
		return c, errors.New("invalid Config: Cluster and Issuer are required")
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Log = loglimit.Limit(c.Log).With("cluster", c.Cluster)
	return c, nil
}

// Pending logs why a request waits, reports it, and returns for how long it waits: at least for the given time.
func (c Config) Pending(request, signer string, err error, least time.Duration) time.Duration {
	again, level := Pending(err)
	again = max(again, least)
	c.Observe(Event{Signer: signer, Result: ResultPending})
	c.Log.Log(context.Background(), level, "request stays pending", "request", text.Clean(request), "signer", signer,
		"again", again.Round(time.Second), "error", text.Clean(err.Error()))
	return again
}

// NewGates returns an open gate for each signer. It returns an error for a name that [CheckName]
// rejects, for one that is listed twice, and if there are none.
func NewGates(signers []string) (Gates, error) {
	if len(signers) == 0 {
		return nil, errors.New("no signers are configured")
	}
	all := Gates{}
	for _, name := range signers {
		if err := CheckName(name); err != nil {
			return nil, err
		}
		if all[name] != nil {
			return nil, fmt.Errorf("the signer %q is there twice", name)
		}
		all[name] = NewGate()
	}
	return all, nil
}

// Refusal is a final decision on a request. Its message is for the client that made it.
type Refusal struct { //nolint:errname // it is a decision, which the doors write
	// Condition is the type of the condition that the request gets, where its door has several.
	Condition string
	// Reason is the condition's, a word in CamelCase. Optional.
	Reason, Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// Refuse returns a [*Refusal] with a reason and a message.
func Refuse(reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Refused returns the [Refusal] that an error is, if it is one.
func Refused(err error) (*Refusal, bool) { return errors.AsType[*Refusal](err) }
