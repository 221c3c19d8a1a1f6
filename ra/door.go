package ra

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Door is a way for requests to come in, with what it can take.
type Door struct {
	// Name is what [Request.Door] and [Match.Doors] say.
	Name string
	// NoNames is set if its callers' CSRs have no names, as a kubelet's, so that the
	// authority must certify the names of the request.
	NoNames bool
	// FollowsRoots is set if its callers have a new root as soon as the engine has: they learn it
	// from [Engine.Roots] and not with a certificate, so [Roots.ByReply] waits for none of theirs.
	FollowsRoots bool
	// Own is set if the caller is the program itself, for its own server: [Config.Guard] is not
	// asked.
	Own bool
	// MinLifetime and MaxLifetime bound NotAfter − NotBefore, the backdating included.
	// With a MaxLifetime, no certificate may live longer than its request allows, backdating
	// included. Default: no bounds but the rule's.
	MinLifetime, MaxLifetime time.Duration
	// LeastTTL is what a request for less asks for, so that its certificate has not ended when the
	// authority answers. Neither the rule's longest lifetime nor [Order.Limit] grows by it. Default:
	// none.
	LeastTTL time.Duration
	// MaxBackdating is how long before the request a certificate may begin. Default: any.
	MaxBackdating time.Duration
	// KeyTypes are the types of keys that it can take, as in [Rule.KeyTypes]. Default: all
	// that the rule has.
	KeyTypes []string
}

// doors are those in force. They do not change.
type doors struct {
	all    []Door
	by     map[string]Door // by name
	strict bool            // one is
}

func newDoors(all []Door) (d *doors, errs []error) {
	d = &doors{all: slices.Clone(all), by: map[string]Door{}}
	for _, one := range all {
		errs = append(errs, one.valid())
		d.by[one.Name], d.strict = one, d.strict || one.strict()
	}
	return d, slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// strict reports whether the lifetime asked for is exact and includes the backdating.
func (d Door) strict() bool { return d.MaxLifetime > 0 }

// check compares a leaf with what the door can take, and with its longest lifetime; sent is when
// it was asked for.
func (d Door) check(leaf *x509.Certificate, most time.Duration, sent time.Time) error {
	lifetime, backdated := leaf.NotAfter.Sub(leaf.NotBefore), sent.Sub(leaf.NotBefore)
	switch {
	case d.MaxBackdating > 0 && backdated > d.MaxBackdating:
		return d.fault("backdating", "the leaf began %s before it was asked for, %s are allowed", backdated.Round(time.Second), d.MaxBackdating)
	case lifetime < d.MinLifetime:
		return d.fault("lifetime", "the leaf lives for %s, backdating included; %s is the least", lifetime, d.MinLifetime)
	case lifetime > most:
		return d.fault("too-long", "the leaf lives for %s, backdating included; %s was granted", lifetime, most)
	}
	return nil
}

func (d Door) fault(check, format string, args ...any) error {
	return &pki.CheckError{Check: check, Detail: fmt.Sprintf("at the door %q, ", d.Name) + fmt.Sprintf(format, args...)}
}
