package xds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// model is what the rules of the protocol say about one stream, in the plainest way.
// It sees each response when the engine has made it, whether or not the client reads.
type model struct {
	source    *memorySource
	dialect   dialect
	wants     map[string]bool   // names that the client would have
	holds     map[string]string // versions that it took
	names     map[string]bool   // names that the stream holds
	sent      map[string]string // versions that went out since the name was taken
	gone      map[string]bool   // names that were told to be removed
	responses []*response       // of this stream
	read      int               // how many of them the client has read
	answered  int               // and how many of these it has answered
	together  map[string]string // versions that were refused with others, which may be sent again
	alone     map[string]string // versions that were refused alone
	lost      map[string]bool   // names that the source did not know once: what was refused may be tried afresh
	removes   bool              // the dialect tells what is removed
	fault     error             // the first
	turn      atomic.Int64      // orders what happens before a sleep and what a timer starts then, for the race detector
}

// response is one of either dialect.
type response struct {
	nonce, version string
	resources      map[string]string // versions
	removed        []string
}

// dialect is a client that says what the model has it say, and tells the model what
// the rules make of that.
type dialect interface {
	connect()       // anew, with what the client wants and holds
	want(string)    // perhaps again
	unwant(string)  //
	answer(ok bool) // the last response that was read
	stale()         // says something with a nonce that is stale
	greedy()        // drops a name and asks for more than a stream may hold
	read() bool     // takes the next response; false for none
	leave()
}

// newModel returns the model of a stream that is not connected yet.
func newModel(s *memorySource) *model {
	return &model{source: s, wants: map[string]bool{}, holds: map[string]string{}, alone: map[string]string{}, lost: map[string]bool{}}
}

// reset is a new stream, of the names that the client wants.
func (m *model) reset(sent map[string]string) {
	m.names, m.sent, m.gone = maps.Clone(m.wants), sent, map[string]bool{}
	m.responses, m.read, m.answered, m.together = nil, 0, 0, map[string]string{}
}

func (m *model) failed(format string, args ...any) {
	if m.fault == nil {
		m.fault = fmt.Errorf(format, args...)
	}
}

// drop is what the rules say of a name that is no longer subscribed to.
func (m *model) drop(name string) {
	delete(m.names, name)
	m.forget(name)
}

// forget has a name told again.
func (m *model) forget(name string) {
	delete(m.sent, name)
	delete(m.gone, name)
}

// made holds a response to the rules.
func (m *model) made(r *response) {
	m.turn.Add(1)
	if len(r.resources)+len(r.removed) == 0 {
		m.failed("a response says nothing")
	}
	had := m.sent["leaf"] != ""
	for name, version := range r.resources {
		m.pushed(name, version)
	}
	for _, name := range r.removed {
		m.removed(name)
	}
	if version := r.resources["leaf"]; had && version != "" && m.names["root"] {
		if root, err := m.source.Peek("", "root"); err == nil && root.Version == version && m.sent["root"] != version {
			m.failed("leaf %s goes before its root", version)
		}
	}
	m.responses = append(m.responses, r)
}

func (m *model) pushed(name, version string) {
	current, err := m.source.Peek("", name)
	switch {
	case !m.names[name]:
		m.failed("%s is pushed, which is not subscribed to", name)
	case err != nil || current.Version != version:
		m.failed("%s=%s is pushed, which is not its content now", name, version)
	case m.sent[name] == version && m.together[name] != version && !(m.alone[name] == version && m.lost[name]):
		m.failed("%s=%s is pushed, which did not change", name, version)
	}
	m.sent[name] = version
	delete(m.gone, name)
}

func (m *model) removed(name string) {
	_, err := m.source.Peek("", name)
	switch {
	case !m.names[name]:
		m.failed("%s is removed, which is not subscribed to", name)
	case !errors.Is(err, ErrUnknown):
		m.failed("%s is removed, which is known", name)
	case m.gone[name]:
		m.failed("%s is removed twice", name)
	}
	m.gone[name] = true
	delete(m.sent, name)
}

// took is what a client has after a response that it accepts.
func (m *model) took(r *response) {
	for name, version := range r.resources {
		if m.wants[name] || m.names[name] {
			m.holds[name] = version
		}
	}
	for _, name := range r.removed {
		delete(m.holds, name)
	}
}

// answers is what the client has after its answer to all that it read: the last response is
// accepted or refused, and those before it, which it did not answer, are accepted.
func (m *model) answers(ok bool) {
	if m.answered == m.read {
		return // once is enough
	}
	for _, r := range m.responses[m.answered : m.read-1] {
		m.took(r)
	}
	m.answered = m.read
	last := m.lastRead()
	if ok {
		m.took(last)
		return
	}
	refused := m.together
	if len(last.resources) == 1 {
		refused = m.alone
	}
	maps.Copy(refused, last.resources)
}

// lastRead returns the last response that the client read, nil for none.
func (m *model) lastRead() *response {
	if m.read == 0 {
		return nil
	}
	return m.responses[m.read-1]
}

// modelLimit is how many names a stream may hold.
const modelLimit = 8

// overdo has the stream end by its limit, which must leave no watch open.
func (m *model) overdo() {
	if len(m.names) < 2 {
		return // it would fit
	}
	m.dialect.greedy()
	synctest.Wait()
	if watched := m.source.watched(); len(watched) > 0 {
		m.failed("%v are watched after the stream has ended", watched)
	}
	m.dialect.leave()
	m.dialect.connect()
}

// greed lists as many names as a stream may hold, none of which the client wants.
func greed() (names []string) {
	for i := range modelLimit {
		names = append(names, fmt.Sprint("extra-", i))
	}
	return names
}

// settle has the client read and accept all there is, and checks that it has all.
func (m *model) settle() error {
	if m.answered < m.read {
		m.dialect.answer(true)
	}
	for range 3 { // what is held back comes after five seconds
		for m.dialect.read() {
			m.dialect.answer(true)
		}
		m.turn.Add(1)
		time.Sleep(6 * time.Second)
		synctest.Wait()
	}
	for name := range m.names {
		current, err := m.source.Peek("", name)
		switch {
		case err == nil && m.sent[name] != current.Version:
			m.failed("%s=%s never came, but %q", name, current.Version, m.sent[name])
		case err == nil && m.wants[name] && m.holds[name] != current.Version && m.alone[name] != current.Version:
			m.failed("%s=%s was not accepted, but %q, and was never refused alone", name, current.Version, m.holds[name])
		case errors.Is(err, ErrUnknown) && m.removes && !m.gone[name]:
			m.failed("%s is unknown, and that was not told", name)
		}
	}
	if watched := m.source.watched(); !slices.Equal(watched, slices.Sorted(maps.Keys(m.names))) {
		m.failed("%v are watched, %v subscribed to", watched, m.names)
	}
	return m.fault
}

// happening is one thing that happens to a stream or its source.
type happening struct {
	what          int
	name, version string
}

var modelNames = []string{"a", "b", "root", "leaf"}

// happenings are what may happen, by name.
var happenings = []struct {
	name string
	do   func(m *model, h happening)
}{
	{"the source has", func(m *model, h happening) { m.source.stock(h.name, h.version) }},
	{"the source changes both", func(m *model, h happening) {
		m.source.stock("root", h.version)
		m.source.stock("leaf", h.version)
	}},
	{"the source has none yet of", func(m *model, h happening) { m.source.unready(h.name) }},
	{"the source knows no longer", func(m *model, h happening) {
		m.lost[h.name] = true
		m.source.remove(h.name)
	}},
	{"the source says for nothing", func(m *model, h happening) { m.source.notify(h.name) }},
	{"the client wants", func(m *model, h happening) { m.dialect.want(h.name) }},
	{"the client drops", func(m *model, h happening) { m.dialect.unwant(h.name) }},
	{"the client reads", func(m *model, _ happening) { m.dialect.read() }},
	{"the client reads and accepts", func(m *model, _ happening) { m.dialect.read(); m.dialect.answer(true) }},
	{"the client reads and refuses", func(m *model, _ happening) { m.dialect.read(); m.dialect.answer(false) }},
	{"the client says something stale", func(m *model, _ happening) { m.dialect.stale() }},
	{"the client asks for too much", func(m *model, _ happening) { m.overdo() }},
	{"the client connects anew", func(m *model, _ happening) { m.dialect.leave(); m.dialect.connect() }},
	{"six seconds go by", func(*model, happening) { time.Sleep(6 * time.Second) }},
}

// stock is set for a resource of the model: leaf 2 needs root 2.
func (s *memorySource) stock(name, version string) {
	r := &Resource{Name: name, Version: version}
	switch name {
	case "root":
		r.Provides = []string{version}
	case "leaf":
		r.Needs = version
	}
	s.put(r)
}

func drawHappening(r *rapid.T) happening {
	return happening{
		rapid.IntRange(0, len(happenings)-1).Draw(r, "what"),
		rapid.SampledFrom(modelNames).Draw(r, "name"),
		rapid.SampledFrom([]string{"1", "2", "3"}).Draw(r, "version"),
	}
}

func TestRandomEventsKeepStreamRules(t *testing.T) {
	for name, speak := range map[string]func(*bench, *model) dialect{
		"state of the world": newModelSotw, "delta": newModelDelta,
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				settled := rapid.Bool().Draw(r, "settled")
				story := rapid.SliceOfN(rapid.Custom(drawHappening), 1, 60).Draw(r, "story")
				var fault error // a failure must not leave the bubble by a panic
				inBubble(t, func(_ *testing.T, b *bench) {
					b.engine.cfg.Limits.MaxNames = modelLimit
					m := newModel(b.source)
					m.dialect = speak(b, m)
					fault = m.live(settled, story)
				})
				if fault != nil {
					r.Fatal(fault)
				}
			})
		})
	}
}

// live lets the story happen, where settled is set to a client that has all names.
func (m *model) live(settled bool, story []happening) error {
	m.dialect.connect()
	defer func() { m.dialect.leave() }()
	if settled {
		for _, name := range modelNames {
			m.source.stock(name, "1")
			m.dialect.want(name)
			m.dialect.read()
			m.dialect.answer(true)
		}
	}
	for i, h := range story {
		m.turn.Add(1)
		happenings[h.what].do(m, h)
		synctest.Wait()
		if m.fault != nil {
			return fmt.Errorf("happening %d, %s (%s, %s): %w", i, happenings[h.what].name, h.name, h.version, m.fault)
		}
	}
	return m.settle()
}
