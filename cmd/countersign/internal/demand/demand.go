// Package demand turns the configuration's rules for certificates on demand into those of
// sdk/ondemand. The agent calls [New], then [Rules.Prepare] at its start and at each reload, one at a
// time. What a rule holds, such as a watched file, the answers it remembers and its budget, stays over
// a reload that does not change its settings.
package demand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
	"github.com/countersign-dev/countersign/sdk/ondemand/budget"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Rules are the rules in force and what they hold. Close it after the agent has ended.
type Rules struct {
	env    environ.Vars
	log    *slog.Logger
	rules  []rule
	ledger *budget.Ledger
	asks   *ask.Shared
	stop   func() // saves the ledger a last time
}

// MaxNames is how many names a stream may hold: those of all rules beside the usual number.
func MaxNames(c config.Config) int {
	const usual = 10_000
	most := usual
	for _, entry := range c.Rules() {
		most += room(entry)
	}
	return most
}

// room is how many names of a rule a stream may hold: twice what the rule holds, as a Set lets clients
// write as many in another case, and once more if as many may be covered.
func room(entry config.Secret) int {
	times := 2
	if len(entry.OnDemand.Cover) > 0 {
		times++
	}
	return times * int(entry.OnDemand.Names)
}

// allBundles is SPIRE's name for all trust bundles.
const allBundles = "ALL"

// Reserved reports whether clients expect something else by a name than the certificate of a host.
func Reserved(name string) bool {
	return slices.ContainsFunc([]string{config.DefaultSecret, config.RootCA, allBundles}, func(other string) bool { return strings.EqualFold(name, other) })
}

// rule is one of them.
type rule struct {
	entry    config.Secret
	patterns *names.Patterns
	decider  ask.Decider
	decides  []closer // what the decider consists of, in the order in which it is closed
}

// closer is a part of a rule. It is comparable.
type closer interface{ Close() }

// New returns no rules.
func New(env environ.Vars, log *slog.Logger) *Rules {
	return &Rules{env: env, log: log, ledger: budget.NewLedger(clock.Wall), asks: ask.NewShared(), stop: func() {}}
}

// Close ends what the rules hold.
func (r *Rules) Close() {
	r.stop()
	closeUnused(r.rules, nil)
}

// ledgerRecord is the name of the record of what the budgets have spent.
const ledgerRecord = "budgets of names on demand"

// Keep has the budgets count over restarts: it reads what was spent, and saves it until Close. If it
// cannot be read, the budgets begin as used up; if nothing was saved, they are full.
func (r *Rules) Keep(ctx context.Context, storage secret.Storage) {
	record, err := storage.Load(ctx, ledgerRecord)
	if err == nil && len(record.Content) > 0 {
		err = r.ledger.UnmarshalBinary(record.Content)
	}
	if err != nil {
		r.log.Error("failed to read what the budgets of names on demand have spent: they begin as used up, and refill at their rates; a higher rate, set for some hours, refills sooner", "error", err)
		r.ledger.Lose()
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var saving sync.WaitGroup
	saving.Go(func() {
		r.ledger.Run(ctx, func(ctx context.Context, state []byte) error {
			return storage.Store(ctx, ledgerRecord, secret.Record{Authority: ledgerRecord, Content: state})
		}, r.log)
	})
	r.stop = func() { cancel(); saving.Wait() }
}

// Next are rules that are not in force yet. Call Take or Drop.
type Next struct {
	of    *Rules
	rules []rule
	all   []ondemand.Rule
}

// Rules returns them for a [ondemand.Set].
func (n *Next) Rules() []ondemand.Rule { return n.all }

// Take ends what only the rules before had.
func (n *Next) Take() {
	old := n.of.rules
	n.of.rules = n.rules
	closeUnused(old, n.rules)
}

// Drop ends what only these rules have.
func (n *Next) Drop() { closeUnused(n.rules, n.of.rules) }

// Prepare makes the rules of a complete configuration. An error changes nothing.
func (r *Rules) Prepare(c config.Config) (*Next, error) {
	n := &Next{of: r}
	for _, entry := range c.Rules() {
		one, err := r.open(entry)
		n.rules = append(n.rules, one)
		var converted ondemand.Rule
		if err == nil {
			converted, err = one.convert(c, r.ledger)
		}
		if err != nil {
			n.Drop()
			return nil, fmt.Errorf("secrets.%s: %w", entry.Name, err)
		}
		n.all = append(n.all, converted)
	}
	return n, nil
}

// open makes what a rule holds, or takes it from the rule of that name in force.
func (r *Rules) open(entry config.Secret) (one rule, err error) {
	var old rule
	if i := slices.IndexFunc(r.rules, func(other rule) bool { return other.entry.Name == entry.Name }); i >= 0 {
		old = r.rules[i]
	}
	one.entry = entry
	was, is := old.entry.OnDemand, entry.OnDemand
	if old.patterns != nil && slices.Equal(old.entry.Match, entry.Match) && old.entry.MatchFile == entry.MatchFile {
		one.patterns = old.patterns
	} else if one.patterns, err = r.patterns(entry); err != nil {
		return one, err
	}
	if reflect.DeepEqual(was.Ask, is.Ask) {
		one.decider, one.decides = old.decider, old.decides
	} else if one.decider, one.decides, err = r.decider(is.Ask); err != nil {
		return one, err
	}
	return one, nil
}

func (r *Rules) patterns(entry config.Secret) (*names.Patterns, error) {
	if entry.MatchFile == "" {
		return names.New(entry.Match...)
	}
	return names.Open(names.Config{Patterns: entry.Match, File: entry.MatchFile, Log: r.log})
}

// decider returns what decides about names, and its parts; nil for nothing.
func (r *Rules) decider(c config.OnDemandAsk) (ask.Decider, []closer, error) {
	switch {
	case c.File != "":
		list, err := names.Open(names.Config{File: c.File, Log: r.log})
		if err != nil {
			return nil, nil, err
		}
		return ask.List{Names: list}, []closer{list}, nil
	case c.URL != "":
		url, err := ask.NewURL(ask.URLConfig{URL: c.URL})
		if err != nil {
			return nil, nil, fmt.Errorf("on_demand.ask.url: %w", err)
		}
		memory := ask.Remember(url, ask.Limits{Shared: r.asks})
		return memory, []closer{memory, url}, nil
	case len(c.Command) > 0:
		memory := ask.Remember(ask.Command{Args: c.Command, Env: wiring.CommandEnv(r.env)}, ask.Limits{Shared: r.asks})
		return memory, []closer{memory}, nil
	}
	return nil, nil, nil
}

// convert returns the rule as a Set takes it.
func (r *rule) convert(c config.Config, ledger *budget.Ledger) (ondemand.Rule, error) {
	o := r.entry.OnDemand
	keyType, err := pki.ParseKeyType(r.entry.KeyType)
	b := o.Budget
	b.New.Burst = int(b.Burst)
	out := ondemand.Rule{
		Budget: ledger.Budget(r.entry.Name, budget.Limits{New: b.New, PerRegisteredDomain: b.PerRegisteredDomain}),
		Name:   r.entry.Name, Patterns: r.patterns, Ask: r.decider, Account: r.entry.Providers[0],
		Certificate: secret.Spec{
			Name: r.entry.Name, Kind: secret.KeyPair, Authorities: r.entry.Providers, KeyType: keyType, TTL: r.entry.TTL.Duration,
			RenewRatio: c.Rotation.Ratio, RenewJitter: max(c.Rotation.Jitter, 1e-9), // 0 would be the default
		},
		Names: int(o.Names), Evict: !c.Costly(r.entry.Providers[0]), Cover: o.Cover, Wait: o.Wait.Duration, Idle: o.Idle.Duration,
	}
	return out, err
}

func (r *rule) parts() []closer {
	all := slices.Clone(r.decides)
	if r.patterns != nil {
		all = append(all, r.patterns)
	}
	return all
}

// closeUnused closes the parts of rules that others do not have.
func closeUnused(rules, others []rule) {
	kept := map[closer]bool{}
	for _, one := range others {
		for _, part := range one.parts() {
			kept[part] = true
		}
	}
	for _, one := range rules {
		for _, part := range one.parts() {
			if !kept[part] {
				part.Close()
			}
		}
	}
}

// Faults returns what keeps rules from deciding now, such as a file of names that is missing.
func Faults(c config.Config) error {
	r := New(nil, slog.New(slog.DiscardHandler))
	next, err := r.Prepare(c)
	if err != nil {
		return err
	}
	defer next.Drop()
	var errs []error
	for _, one := range next.rules {
		errs = append(errs, one.patterns.Err())
		if list, ok := one.decider.(ask.List); ok {
			errs = append(errs, list.Names.Err())
		}
	}
	return errors.Join(errs...)
}
