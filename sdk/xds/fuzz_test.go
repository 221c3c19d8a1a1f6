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
		{&discovery.DiscoveryRequest{TypeUrl: thingURL, ResourceNames: []string{"a"}}, &discovery.DiscoveryRequest{ResponseNonce: lastNonce, ErrorDetail: refusal("no")}},
	} {
		f.Add(false, framed(story))
	}
	for _, story := range [][]proto.Message{
		{&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "u"}, InitialResourceVersions: map[string]string{"a": "1"}}},
		{
			&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a", "slow"}},
			&discovery.DeltaDiscoveryRequest{ResponseNonce: lastNonce, ResourceNamesUnsubscribe: []string{"a"}, ResourceNamesSubscribe: []string{"a"}},
		},
	} {
		f.Add(true, framed(story))
	}
	f.Fuzz(func(t *testing.T, incremental bool, story []byte) {
		if len(story) > 512 {
			return // more of the same
		}
		s := newSession([]string{thingURL, "other"}, "", "x", fuzzLimits, time.Second)
		s.implied = thingURL
		if incremental {
			fuzz(t, &delta{s}, &discovery.DeltaDiscoveryRequest{}, story)
		} else {
			fuzz(t, &sotw{s}, &discovery.DiscoveryRequest{}, story)
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
func fuzz[Q anyRequest, R anyResponse](t *testing.T, m machine[Q, R], empty Q, story []byte) {
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
		for _, e := range st.added {
			m.changed(st.typ, e.name)
		}
		now = now.Add(time.Second)
		if got, ok := respondOnce(t, m, now); ok {
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
func respondOnce[Q, R any](t *testing.T, m machine[Q, R], now time.Time) (got R, ok bool) {
	subscribed := map[string]bool{}
	for e := range m.all() {
		subscribed[e.name] = true
		if e.name == "" || e.name == "*" || len(e.name) > fuzzLimits.MaxNameLength {
			t.Fatalf("subscribed to %q", e.name)
		}
	}
	if len(subscribed) > fuzzLimits.MaxNames {
		t.Fatalf("%d names on the stream", len(subscribed))
	}
	typ, names := m.due(now)
	found := make([]lookup, len(names))
	for i, name := range names {
		found[i] = fuzzLookup(name)
	}
	got, b, ok := m.respond(typ, found, now)
	for _, r := range b.resources {
		if !subscribed[r.Name] {
			t.Fatalf("%q is sent, which is not subscribed to", r.Name)
		}
	}
	if again, names := m.due(now); len(names) > 0 {
		t.Fatalf("%v of type %d are due again", names, again)
	}
	return got, ok
}

func fuzzLookup(name string) lookup {
	switch name[0] {
	case 'a':
		return lookup{name, &Resource{Name: name, Version: "1", Body: bodyOf(name)}, nil}
	case 'u':
		return lookup{name, nil, ErrUnknown}
	default:
		return lookup{name, nil, ErrNotReady}
	}
}
