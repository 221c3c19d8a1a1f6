package agent

import (
	"errors"
	"maps"
	"sync"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// change is what a configuration makes of the providers: found and verified, and not started.
// It is taken or dropped.
type change struct {
	tokens *wiring.TokenCache
	added  map[string]*pluginhost.Provider
	next   map[string]*pluginhost.Plan // of those that are there already
}

// change finds and verifies the providers of a configuration.
func (p *providers) change(c config.Config) (*change, error) {
	ch := &change{tokens: p.tokens.Clone(), added: map[string]*pluginhost.Provider{}, next: map[string]*pluginhost.Plan{}}
	running, found, errs := p.all(), make([]func(), len(c.Providers)), make([]error, len(c.Providers))
	var all sync.WaitGroup
	for i, entry := range c.Providers { // at the same time, as each binary is hashed
		all.Go(func() {
			found[i], errs[i] = ch.find(p.opts, running[entry.Name], entry.ToRun())
		})
	}
	all.Wait()
	for i, add := range found {
		if errs[i] == nil {
			add()
		}
	}
	if err := errors.Join(errs...); err != nil {
		ch.drop()
		return nil, err
	}
	return ch, nil
}

// find returns what adds the provider to the change.
func (ch *change) find(opts pluginhost.Options, is *pluginhost.Provider, entry pluginhost.Entry) (add func(), err error) {
	if is == nil {
		found, err := pluginhost.Find(opts, entry)
		return func() { ch.added[entry.Name] = found }, asSettings(err)
	}
	next, err := is.Next(entry)
	return func() { ch.next[entry.Name] = next }, asSettings(err)
}

// client returns the client that an entry will have.
func (ch *change) client(name string) ca.Client {
	if added := ch.added[name]; added != nil {
		return added.Client()
	}
	return ch.next[name].Client()
}

// changed returns the entries whose providers have other settings or another binary.
func (ch *change) changed() map[string]*pluginhost.Plan {
	changed := maps.Clone(ch.next)
	maps.DeleteFunc(changed, func(_ string, n *pluginhost.Plan) bool { return !n.Changed() })
	return changed
}

// drop leaves everything as it was.
func (ch *change) drop() {
	for _, p := range ch.added {
		_ = p.Close()
	}
	for _, n := range ch.next {
		n.Abort()
	}
}

// take adds the new providers. Those that are there already go on.
func (p *providers) take(ch *change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens = ch.tokens
	maps.Copy(p.byName, ch.added)
}
