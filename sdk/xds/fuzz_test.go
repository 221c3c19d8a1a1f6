package xds

import (
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// fuzzLimits are small, so that a fuzzer reaches them.
var fuzzLimits = Limits{MaxNames: 8, MaxNameLength: 16, MaxNodeID: 16}

// lastNonce is what a fuzzed request says instead of the nonce that it cannot guess.
const lastNonce = "last"

// FuzzRequests has a client send a series of requests, each as a byte of length and
// a protobuf. The source has what begins with an a, knows not what begins with a u.
func FuzzRequests(f *testing.F) {
	for _, story := range [][]proto.Message{
		{&discovery.DiscoveryRequest{ResourceNames: []string{"a", "u", "slow", "*", ""}}, &discovery.DiscoveryRequest{ResponseNonce: lastNonce, ResourceNames: []string{"b"}}},
		{&discovery.DiscoveryRequest{VersionInfo: "1"}, &discovery.DiscoveryRequest{ResponseNonce: lastNonce, ResourceNames: []string{"*", "a"}}, &discovery.DiscoveryRequest{ResponseNonce: lastNonce}},
		{&discovery.DiscoveryRequest{TypeUrl: thingURL, ResourceNames: []string{"a"}}, &discovery.DiscoveryRequest{ResponseNonce: lastNonce, ErrorDetail: refusal("no")}},
	} {
		for _, complete := range []bool{false, true} {
			f.Add(false, false, complete, framed(story))
			f.Add(false, true, complete, framed(story))
		}
	}
	for _, story := range [][]proto.Message{
		{&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "u"}, InitialResourceVersions: map[string]string{"a": "1"}}},
		{
			&discovery.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{"a": "1", "gone": "1"}},
			&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"*", "a", "b"}},
			&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"b", "a"}},
			&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"*"}},
		},
		{
			&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "slow"}},
			&discovery.DeltaDiscoveryRequest{ResponseNonce: lastNonce, ResourceNamesUnsubscribe: []string{"a"}, ResourceNamesSubscribe: []string{"a"}},
		},
	} {
		f.Add(true, false, false, framed(story))
		f.Add(true, true, false, framed(story))
	}
	f.Fuzz(func(t *testing.T, incremental, lists, complete bool, story []byte) {
		if len(story) > 512 {
			return // more of the same
		}
		policies := []policy{{url: thingURL, hold: time.Second, lists: lists, complete: complete && !incremental, answers: &answers{}, removes: incremental}, {url: "other"}}
		s := newSession(policies, thingURL, "x", fuzzLimits)
		if incremental {
			m := &delta{s}
			fuzz(t, m, &m.session, &discovery.DeltaDiscoveryRequest{}, story)
		} else {
			m := &sotw{s}
			fuzz(t, m, &m.session, &discovery.DiscoveryRequest{}, story)
		}
	})
}

// framed returns the story as the fuzzer has it.
func framed(story []proto.Message) (out []byte) {
	for _, message := range story {
		encoded, err := proto.Marshal(message)
		if err != nil {
			panic(err)
		}
		out = append(append(out, byte(len(encoded))), encoded...)
	}
	return out
}

// anyRequest is what both dialects' requests have.
type anyRequest interface {
	proto.Message
	GetResponseNonce() string
}

// anyResponse is what both dialects' responses have.
type anyResponse interface {
	proto.Message
	GetNonce() string
}

// fuzz plays a story to a machine, which is asked for its response after each part.
func fuzz[Q anyRequest, R anyResponse](t *testing.T, m machine[Q, R], s *session, empty Q, story []byte) {
	nonce, now := "", time.Unix(0, 0)
	for len(story) > 0 {
		n := min(int(story[0]), len(story)-1)
		req := proto.Clone(empty).(Q)
		err := proto.Unmarshal(story[1:1+n], req)
		story = story[1+n:]
		if err != nil {
			continue
		}
		if req.GetResponseNonce() == lastNonce {
			setNonce(req, nonce)
		}
		st, err := m.request(req)
		if err != nil {
			return // the stream is over
		}
		if st.wild != nil {
			m.relist(st.typ)
		}
		for _, e := range st.added {
			m.changed(st.typ, e.name)
		}
		now = now.Add(time.Second)
		if got, ok := respondOnce(t, m, s, now); ok {
			nonce = got.GetNonce()
		}
	}
}

func setNonce(req proto.Message, nonce string) {
	switch req := req.(type) {
	case *discovery.DiscoveryRequest:
		req.ResponseNonce = nonce
	case *discovery.DeltaDiscoveryRequest:
		req.ResponseNonce = nonce
	}
}

// respondOnce plays the runner and checks what always holds.
func respondOnce[Q, R any](t *testing.T, m machine[Q, R], s *session, now time.Time) (got R, ok bool) {
	next, _ := m.due(now)
	if next.list {
		// Each list is another: its first name comes and goes with the seconds.
		added, _ := m.listed(next.typ, []string{"a" + string(rune('0'+now.Unix()%3)), "a", "slow"}, now.Unix()%2 == 0)
		for _, e := range added {
			m.changed(next.typ, e.name)
		}
		next, _ = m.due(now)
	}
	subscribed, asked := map[string]bool{}, 0
	for name, e := range s.types[0].entries {
		subscribed[name] = true
		if name == "" || name == star || len(name) > fuzzLimits.MaxNameLength {
			t.Fatalf("subscribed to %q", name)
		}
		if e.named {
			asked++
		}
		if !e.named && !e.listed {
			t.Fatalf("nobody subscribes to %q", name)
		}
	}
	if asked > fuzzLimits.MaxNames || asked != s.types[0].asked {
		t.Fatalf("%d names on the stream, counted as %d", asked, s.types[0].asked)
	}
	found := make([]lookup, len(next.names))
	for i, name := range next.names {
		found[i] = fuzzLookup(name)
	}
	got, b, ok := m.respond(next.typ, found, now)
	for _, r := range b.resources {
		if !subscribed[r.Name] {
			t.Fatalf("%q is sent, which is not subscribed to", r.Name)
		}
	}
	if again, ok := m.due(now); ok {
		t.Fatalf("%+v is due again", again)
	}
	return got, ok
}

func fuzzLookup(name string) lookup {
	switch name[0] {
	case 'a':
		return lookup{name: name, resource: &Resource{Name: name, Version: "1", Body: bodyOf(name)}}
	case 'u':
		return lookup{name: name, resource: nil, err: ErrUnknown}
	default:
		return lookup{name: name, resource: nil, err: ErrNotReady}
	}
}
