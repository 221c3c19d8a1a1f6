package secret

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// generation holds the secrets, authorities and goroutines of one configuration. Its set
// does not change; a reload replaces the whole generation.
type generation struct {
	config      Config
	keeper      *keeper
	secrets     map[string]holder
	names       []string // sorted
	authorities []*authority
	turns       map[string]turn // keyed by authority and identity

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// holder is a leaf or a trustBundle.
type holder interface {
	place() *slot
	nudge()
	status() Status
}

func (s *slot) place() *slot { return s }

// newGeneration checks a configuration and builds its generation. It starts nothing.
func (m *Manager) newGeneration(secrets []Spec, authorities []Authority) (*generation, error) {
	g := &generation{config: m.config, keeper: m.keeper, secrets: make(map[string]holder), turns: make(map[string]turn)}
	g.ctx, g.cancel = context.WithCancel(m.ctx)
	b := builder{generation: g, places: &m.places, known: make(map[string]*authority), taken: make(map[string]bool)}
	if err := b.build(secrets, authorities); err != nil {
		g.cancel()
		return nil, err
	}
	slices.Sort(g.names)
	return g, nil
}

// builder holds what the secrets share while they are built.
type builder struct {
	*generation
	places *places
	known  map[string]*authority
	taken  map[string]bool
}

func (b *builder) build(secrets []Spec, authorities []Authority) error {
	for _, a := range authorities {
		if err := a.check(); err != nil {
			return err
		}
		if b.known[a.Name] != nil {
			return fmt.Errorf("authority %q is there twice", a.Name)
		}
		b.known[a.Name] = newAuthority(a, b.config, b.keeper, b.ctx.Done())
		b.authorities = append(b.authorities, b.known[a.Name])
	}
	for _, spec := range secrets {
		if err := b.add(spec.withDefaults()); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) add(spec Spec) error {
	if err := spec.check(); err != nil {
		return err
	}
	if b.secrets[spec.Name] != nil {
		return fmt.Errorf("secret %q is there twice", spec.Name)
	}
	from := make([]*authority, len(spec.Authorities))
	for i, name := range spec.Authorities {
		if from[i] = b.known[name]; from[i] == nil {
			return fmt.Errorf("secret %q: authority %q is not configured", spec.Name, name)
		}
	}
	b.names = append(b.names, spec.Name)
	if spec.Kind == TrustBundle {
		b.addBundle(spec, from)
	} else {
		b.addLeaf(spec, from)
	}
	return nil
}

func (b *builder) addBundle(spec Spec, from []*authority) {
	bundle := &trustBundle{slot: b.places.of(spec.Name), spec: spec, sources: from, now: b.config.Now, observe: b.config.Observe}
	for _, a := range from {
		a.bundles = append(a.bundles, bundle)
	}
	b.secrets[spec.Name] = bundle
}

func (b *builder) addLeaf(spec Spec, from []*authority) {
	for _, name := range spec.Identity.Names() {
		b.taken[name] = true
	}
	l := &leaf{
		slot: b.places.of(spec.Name), spec: spec, stop: b.ctx.Done(), now: b.config.Now, observe: b.config.Observe, log: b.config.Log.With("secret", spec.Name),
		taken: b.taken, keeper: b.keeper, keys: b.config.Keys, spawn: b.wg.Go,
		wakeup: make(chan struct{}, 1), inbox: make(chan func()), replies: make(chan *attempt),
	}
	for _, a := range from {
		l.choices = append(l.choices, &choice{authority: a, asks: b.turn(a.Name, spec.Identity)})
		a.leaves = append(a.leaves, l)
	}
	b.secrets[spec.Name] = l
}

// turn returns the turn that all secrets of an identity share, so that one request is in
// flight.
func (b *builder) turn(authority string, id pki.Identity) turn {
	key := authority + "\x00" + id.String()
	if b.turns[key] == nil {
		b.turns[key] = newTurn()
	}
	return b.turns[key]
}

func (g *generation) start() {
	for _, a := range g.authorities {
		g.wg.Go(a.run)
		g.wg.Go(func() { (&feed{authority: a}).run(g.ctx) })
	}
	for _, h := range g.secrets {
		if l, ok := h.(*leaf); ok {
			g.wg.Go(func() { l.run(g.ctx) })
		}
	}
}

// end stops all goroutines of the generation and waits for them.
func (g *generation) end() {
	g.cancel()
	g.wg.Wait()
}

// authority returns the authority with that name, or nil.
func (g *generation) authority(name string) *authority {
	i := slices.IndexFunc(g.authorities, func(a *authority) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return g.authorities[i]
}
