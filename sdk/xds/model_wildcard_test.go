package xds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"pgregory.net/rapid"
)

// follower is a client of the wildcard and of names, that takes each response as its
// dialect has it. It sees a response when the engine has made it.
type follower struct {
	bench    *bench
	catalog  *catalog
	complete bool
	wants    map[string]bool   // "*" among them
	holds    map[string]string // versions
	listed   bool              // the stream had a list of its wildcard once
	version  string
	begun    bool
	sotw     *client
	delta    *deltaClient
	fault    error
}

func (f *follower) failed(format string, args ...any) {
	if f.fault == nil {
		f.fault = fmt.Errorf(format, args...)
	}
}

// subscribed reports whether a name is the client's, as far as the list is known.
func (f *follower) subscribed(name string) bool {
	return f.wants[name] || f.wants[star] && (f.catalog.names == nil || slices.Contains(f.catalog.names, name))
}

// stays reports whether a name must not be deleted. While the list is not there, the stream
// may go by one that it had before.
func (f *follower) stays(name string) bool {
	return f.wants[name] || f.subscribed(name) && !(f.catalog.names == nil && f.listed)
}

// made takes a response: whole is all that the client has then, nil where it is merged.
func (f *follower) made(merged map[string]string, removed []string, whole bool) {
	before := maps.Clone(f.holds)
	for name, version := range merged {
		current, err := f.catalog.Peek("", name)
		if err == nil && current.Version != version && (!whole || f.holds[name] != version) {
			f.failed("%s=%s is pushed, and it is %s", name, version, current.Version)
		}
		if !f.subscribed(name) && !whole {
			f.failed("%s is pushed, which is not subscribed to", name)
		}
		f.holds[name] = version
	}
	maps.DeleteFunc(f.holds, func(name, _ string) bool {
		return slices.Contains(removed, name) || whole && merged[name] == ""
	})
	for name := range before {
		if _, err := f.catalog.Peek("", name); f.holds[name] == "" && f.stays(name) && errors.Is(err, ErrNotReady) {
			f.failed("%s is deleted, which is only not ready", name)
		}
	}
}

func (f *follower) connect() {
	f.read()
	f.begun, f.listed = true, false
	if len(f.wants) == 0 {
		f.wants[star] = true // as no name at all says
	}
	if f.sotw != nil || f.delta != nil {
		f.leave()
	}
	if f.delta != nil || f.sotw == nil {
		f.delta = &deltaClient{dialPeer(f.bench.t, "", func(s Stream[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]) error {
			return f.bench.engine.StreamDelta(observed[*discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse]{s, func(r *discovery.DeltaDiscoveryResponse) {
				parsed := parseDelta(r)
				f.made(parsed.resources, parsed.removed, false)
			}}, thingURL)
		}, deltaContents)}
		f.delta.resume(maps.Clone(f.holds), slices.Sorted(maps.Keys(f.wants))...)
		return
	}
	f.dialSotw()
	f.sotw.send(&discovery.DiscoveryRequest{VersionInfo: f.version, ResourceNames: slices.Sorted(maps.Keys(f.wants))})
}

func (f *follower) dialSotw() {
	f.sotw = &client{dialPeer(f.bench.t, "", func(s Stream[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]) error {
		return f.bench.engine.Stream(observed[*discovery.DiscoveryRequest, *discovery.DiscoveryResponse]{s, func(r *discovery.DiscoveryResponse) {
			f.made(parseSotw(r).resources, nil, f.complete)
		}}, thingURL)
	}, contents)}
}

func (f *follower) leave() {
	if f.delta != nil {
		f.delta.cancel()
	} else {
		f.sotw.cancel()
	}
	synctest.Wait()
}

// read takes and accepts all there is.
func (f *follower) read() {
	for f.begun {
		synctest.Wait()
		if f.delta != nil {
			select {
			case f.delta.last = <-f.delta.responses:
				f.delta.ack()
				continue
			default:
			}
			return
		}
		select {
		case f.sotw.last = <-f.sotw.responses:
			f.version = f.sotw.last.GetVersionInfo()
			f.sotw.ack(slices.Sorted(maps.Keys(f.wants))...)
			continue
		default:
		}
		return
	}
}

// want subscribes to a name, or to no longer; it has read all, so that no nonce is stale.
func (f *follower) want(name string, yes bool) {
	f.read()
	if f.wants[name] == yes || f.sotw != nil && f.sotw.last == nil {
		return // without a nonce a request takes nothing off
	}
	if name == star {
		f.listed = false
	}
	if yes {
		f.wants[name] = true
	} else {
		delete(f.wants, name)
		f.dropped(name)
	}
	switch {
	case f.delta == nil:
		f.sotw.ack(slices.Sorted(maps.Keys(f.wants))...)
	case yes:
		f.delta.subscribe(name)
	default:
		f.delta.unsubscribe(name)
	}
}

// again sends all that the client wants with neither nonce nor version.
func (f *follower) again() {
	if f.sotw != nil {
		f.read()
		f.sotw.send(&discovery.DiscoveryRequest{ResourceNames: slices.Sorted(maps.Keys(f.wants))})
	}
}

// dropped has the client drop what it no longer wants, as far as it can know.
func (f *follower) dropped(name string) {
	maps.DeleteFunc(f.holds, func(held, _ string) bool {
		return !f.wants[star] && !f.wants[held] && (name == star || name == held)
	})
}

// settle checks that the client has what there is, and nothing else where it is told.
func (f *follower) settle() error {
	if f.catalog.names == nil {
		f.catalog.list("a")
	}
	for _, name := range modelNames {
		if _, err := f.catalog.Peek("", name); errors.Is(err, ErrNotReady) {
			f.catalog.set(name, "at last") // a complete answer may wait for it
		}
	}
	for range 3 {
		f.read()
		time.Sleep(6 * time.Second)
	}
	for _, name := range modelNames {
		current, err := f.catalog.Peek("", name)
		switch has := f.holds[name]; {
		case err == nil && f.subscribed(name) && has != current.Version:
			f.failed("%s=%s never came, but %q", name, current.Version, has)
		case has != "" && (f.complete || f.delta != nil) && (!f.subscribed(name) || errors.Is(err, ErrUnknown)):
			f.failed("%s=%s was never deleted: subscribed to %v, %v", name, has, f.subscribed(name), err)
		}
	}
	return f.fault
}

var followings = []struct {
	name string
	do   func(f *follower, h happening)
}{
	{"the source has", func(f *follower, h happening) { f.catalog.set(h.name, h.version) }},
	{"the source has none yet of", func(f *follower, h happening) { f.catalog.unready(h.name) }},
	{"the source knows no longer", func(f *follower, h happening) { f.catalog.delete(h.name) }},
	{"the list has", func(f *follower, h happening) {
		if !slices.Contains(f.catalog.names, h.name) {
			f.catalog.list(append(slices.Clone(f.catalog.names), h.name)...)
		}
	}},
	{"the list has no longer", func(f *follower, h happening) {
		f.catalog.list(slices.DeleteFunc(slices.Clone(f.catalog.names), func(n string) bool { return n == h.name })...)
	}},
	{"there is no list", func(f *follower, _ happening) { f.catalog.unlist() }},
	{"the client wants", func(f *follower, h happening) { f.want(h.name, true) }},
	{"the client wants no longer", func(f *follower, h happening) { f.want(h.name, false) }},
	{"the client wants all", func(f *follower, _ happening) { f.want(star, true) }},
	{"the client wants no longer all", func(f *follower, _ happening) { f.want(star, false) }},
	{"the client reads", func(f *follower, _ happening) { f.read() }},
	{"the client asks again", func(f *follower, _ happening) { f.again() }},
	{"the client connects anew", func(f *follower, _ happening) { f.connect() }},
}

func drawFollowing(r *rapid.T) happening {
	h := drawHappening(r)
	h.what = rapid.IntRange(0, len(followings)-1).Draw(r, "following")
	return h
}

// A client that asks for a name afresh, while the source has none, may still hold the version from
// before. It was never told that the resource had gone.
func TestReaskedNameIsStillRemoved(t *testing.T) {
	const has, unready, listHas, noList, wants, wantsNoLonger = 0, 1, 3, 5, 6, 7
	withCatalog(t, false, func(t *testing.T, b *bench, s *catalog) {
		f := &follower{bench: b, catalog: s, wants: map[string]bool{star: true}, holds: map[string]string{}}
		var story []happening
		for _, what := range []int{has, listHas, noList, unready, wants, wantsNoLonger} {
			story = append(story, happening{what: what, name: "b", version: "1"})
		}
		if err := f.live(story); err != nil {
			t.Error(err)
		}
	})
}

// A name that the client drops may be on the list that is still to come. Until then the client
// holds what it was sent for it.
func TestDroppedNameStaysUntilListIsThere(t *testing.T) {
	const has, unready, listHas, noList, wants, wantsNoLonger, wantsAll, wantsNoLongerAll = 0, 1, 3, 5, 6, 7, 8, 9
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		f := &follower{bench: b, catalog: s, complete: true, wants: map[string]bool{star: true}, holds: map[string]string{}}
		f.dialSotw()
		story := []happening{{what: has, name: "a", version: "1"}, {what: listHas, name: "a"}}
		for _, what := range []int{has, wants, wantsNoLongerAll, noList, wantsAll, wantsNoLonger, unready, listHas} {
			story = append(story, happening{what: what, name: "b", version: "1"})
		}
		if err := f.live(story); err != nil {
			t.Error(err)
		}
	})
}

func TestRandomEventsLeaveWildcardClientInSync(t *testing.T) {
	for name, c := range map[string]struct{ delta, complete bool }{
		"complete": {complete: true}, "incremental": {}, "delta": {delta: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				wants := map[string]bool{rapid.SampledFrom([]string{star, "b"}).Draw(r, "wants"): true}
				settled := rapid.Bool().Draw(r, "settled")
				story := rapid.SliceOfN(rapid.Custom(drawFollowing), 1, 60).Draw(r, "story")
				var fault error
				withCatalog(t, c.complete, func(_ *testing.T, b *bench, s *catalog) {
					if settled {
						s.have("a", "b")
					}
					f := &follower{bench: b, catalog: s, complete: c.complete, wants: wants, holds: map[string]string{}}
					if !c.delta {
						f.dialSotw()
					}
					fault = f.live(story)
				})
				if fault != nil {
					r.Fatal(fault)
				}
			})
		})
	}
}

func (f *follower) live(story []happening) error {
	f.connect()
	defer f.leave()
	for i, h := range story {
		followings[h.what].do(f, h)
		synctest.Wait()
		f.listed = f.listed || f.catalog.names != nil
		if f.fault != nil {
			return fmt.Errorf("happening %d, %s (%s, %s): %w", i, followings[h.what].name, h.name, h.version, f.fault)
		}
	}
	return f.settle()
}
