package secret

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/countersign-dev/countersign/internal/call"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// directory is what one configuration consists of. It does not change: a reload makes the
// next one, in which the objects of the last live on.
type directory struct {
	settings    settings // from which it was made
	secrets     map[string]holder
	names       []string // sorted
	authorities map[string]*authority
	turns       map[turnKey]call.Turn
	retired     []*authority // not configured any more, and still needed for their roots
}

// turnKey says who shares a turn: all secrets of an identity, so that one request is in
// flight.
type turnKey struct{ authority, identity string }

// holder is a leaf or a trustBundle.
type holder interface {
	place() *slot
	end() // after it, nothing of the holder writes into its slot
	nudge()
	status() Status
}

func (s *slot) place() *slot { return s }

func (d *directory) leaves() []*leaf {
	var all []*leaf
	for _, name := range d.names {
		if l, ok := d.secrets[name].(*leaf); ok {
			all = append(all, l)
		}
	}
	return all
}

// settings is a configuration that was checked, with its defaults.
type settings struct {
	secrets     []Spec
	authorities map[string]Authority
}

func checked(secrets []Spec, authorities []Authority) (settings, error) {
	s := settings{authorities: make(map[string]Authority)}
	for _, a := range authorities {
		if err := a.check(); err != nil {
			return s, err
		}
		if _, known := s.authorities[a.Name]; known {
			return s, fmt.Errorf("authority %q is there twice", a.Name)
		}
		s.authorities[a.Name] = a.withDefaults()
	}
	names := make(map[string]bool)
	for _, spec := range secrets {
		spec = spec.withDefaults()
		if err := s.check(spec); err != nil {
			return s, err
		}
		if names[spec.Name] {
			return s, fmt.Errorf("secret %q is there twice", spec.Name)
		}
		names[spec.Name] = true
		s.secrets = append(s.secrets, spec)
	}
	return s, nil
}

func (s settings) check(spec Spec) error {
	if err := spec.check(); err != nil {
		return err
	}
	for _, name := range spec.Authorities {
		if _, known := s.authorities[name]; !known {
			return fmt.Errorf("secret %q: authority %q is not configured", spec.Name, name)
		}
	}
	return nil
}

// builder makes the directory for settings, out of the last one.
type builder struct {
	*Manager
	*directory
	last  *directory
	plans map[*leaf]plan                // for those that live on
	conf  map[*authority]*authorityPlan // of all authorities, the retired ones too
	fresh map[*authority]struct{}       // to be started
	born  []*leaf                       // to be started
	bound map[*trustBundle]bound        // for those that live on
	taken *owners
}

// bound is what a trust bundle is configured to be.
type bound struct {
	spec    Spec
	sources []*authority
}

// build makes the next directory. It starts and changes nothing.
func (m *Manager) build(s settings, last *directory) *builder {
	b := &builder{
		Manager: m, last: last, plans: make(map[*leaf]plan), conf: make(map[*authority]*authorityPlan),
		fresh: make(map[*authority]struct{}), bound: make(map[*trustBundle]bound), taken: ownersOf(s.secrets),
		directory: &directory{
			settings: s, secrets: make(map[string]holder), authorities: make(map[string]*authority), turns: make(map[turnKey]call.Turn),
		},
	}
	for name, conf := range s.authorities {
		a, p := last.authorities[name], &authorityPlan{Authority: &conf}
		if a == nil {
			a = newAuthority(m, p)
			b.fresh[a] = struct{}{}
		}
		b.authorities[name], b.conf[a] = a, p
	}
	b.retire()
	for _, spec := range s.secrets {
		b.names = append(b.names, spec.Name)
		if spec.Kind == TrustBundle {
			b.addBundle(spec)
		} else {
			b.addLeaf(spec)
		}
	}
	slices.Sort(b.names)
	return b
}

// retire lists the authorities whose roots are still needed without them.
func (b *builder) retire() {
	for _, a := range b.last.retired {
		if !a.over() {
			b.retired = append(b.retired, a)
		}
	}
	for name, a := range b.last.authorities {
		if b.authorities[name] == nil {
			b.retired = append(b.retired, a)
		}
	}
	for _, a := range b.retired {
		b.conf[a] = &authorityPlan{Authority: a.settings()}
	}
}

func (b *builder) addBundle(spec Spec) {
	var sources []*authority
	for _, name := range spec.Authorities {
		sources = append(sources, b.authorities[name])
	}
	bundle, lives := b.last.secrets[spec.Name].(*trustBundle)
	if !lives {
		bundle = newTrustBundle(b.Manager, spec, sources)
	} else {
		for _, a := range bundle.from() {
			if slices.Contains(b.retired, a) {
				sources = append(sources, a)
			}
		}
	}
	b.bound[bundle] = bound{spec, sources}
	for _, a := range sources {
		b.conf[a].bundles = append(b.conf[a].bundles, bundle)
	}
	b.secrets[spec.Name] = bundle
}

func (b *builder) addLeaf(spec Spec) {
	p := plan{spec: spec, taken: b.taken}
	for _, name := range spec.Authorities {
		p.authorities, p.turns = append(p.authorities, b.authorities[name]), append(p.turns, b.turn(name, spec.Identity))
	}
	l, lives := b.last.secrets[spec.Name].(*leaf)
	if !lives {
		l = newLeaf(b.Manager, p)
		b.born = append(b.born, l)
	} else {
		b.plans[l] = p
	}
	for _, a := range p.authorities {
		b.conf[a].leaves = append(b.conf[a].leaves, l)
	}
	b.secrets[spec.Name] = l
}

// turn returns the turn of an identity at an authority. It outlives a reload, as a client
// that ignores its context may still have it; another client gets another.
func (b *builder) turn(authority string, id pki.Identity) call.Turn {
	key := turnKey{authority, id.String()}
	if b.turns[key] != nil {
		return b.turns[key]
	}
	a := b.authorities[authority]
	t := b.last.turns[key]
	if t == nil || !same(a.settings().Client, b.conf[a].Client) {
		t = call.NewTurn()
	}
	b.turns[key] = t
	return t
}

// same reports whether two clients are one.
func same(a, b ca.Client) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.Type() == y.Type() && x.Comparable() && y.Comparable() && x.Equal(y)
}

// errNoRootLeft is the refusal of pins that exclude every root.
var errNoRootLeft = errors.New("the new pinned roots leave no root in it")

// check refuses settings that would leave a trust bundle without any root.
func (b *builder) check() error {
	for bundle, is := range b.bound {
		held := bundle.item.Load()
		if held != nil && !slices.ContainsFunc(is.sources, b.keepsRoots) {
			return fmt.Errorf("secret %q: %w; the authorities %q have only %q: add one that they have, or wait until they have a pinned one",
				is.spec.Name, errNoRootLeft, is.spec.Authorities, held.RootFingerprints)
		}
	}
	return nil
}

// keepsRoots reports whether an authority has, or may yet have, roots under its new pins.
func (b *builder) keepsRoots(a *authority) bool {
	roots := a.bundle.Load()
	if roots.Len() == 0 {
		_, fresh := b.fresh[a]
		return fresh
	}
	pins := b.conf[a].PinnedRoots
	if pins == nil || a.feed.mute.Load() {
		return true
	}
	return roots.Filter(pins.Contains).Len() > 0
}

// changedNames returns the names that are in only one of the two.
func changedNames(last, next *directory) map[string]bool {
	names := make(map[string]bool)
	for name := range last.secrets {
		names[name] = next.secrets[name] == nil
	}
	for name := range next.secrets {
		names[name] = last.secrets[name] == nil
	}
	maps.DeleteFunc(names, func(_ string, changed bool) bool { return !changed })
	return names
}
