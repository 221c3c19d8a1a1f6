package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// sotw is the state-of-the-world protocol of one stream: requests and changes go
// in, responses come out. It has no I/O, no clock and no lock.
//
// The nonce decides what a request means (Envoy's xDS protocol, "ACK/NACK and
// resource type instance version"): without one, or before anything was sent, it
// adds names; with the current one it acknowledges or refuses and its list
// replaces the names; any other nonce is stale and the request is ignored.
type sotw struct {
	limits  Limits
	prefix  string // of nonces, different for each start of an engine
	implied string // the type of a request that names none
	types   []sotwType
	node    string
	started bool
	seq     uint64
}

// sotwType is one type on the stream.
type sotwType struct {
	subscription
	url     string
	seq     uint64 // of the last response; zero before the first
	nonce   string
	version string
}

// newSotw returns the machine for a stream of the types urls, in the order in
// which their changes are pushed.
func newSotw(urls []string, implied, prefix string, limits Limits, hold time.Duration) *sotw {
	m := &sotw{limits: limits, prefix: prefix, implied: implied, types: make([]sotwType, len(urls))}
	for i, url := range urls {
		m.types[i].url, m.types[i].hold = url, hold
	}
	return m
}

// request takes one message of the client. An error is a status that ends the stream.
func (m *sotw) request(req *discovery.DiscoveryRequest) (step, error) {
	if err := m.open(req); err != nil {
		return step{}, err
	}
	typ, err := m.typeOf(req.GetTypeUrl())
	if err != nil {
		return step{}, err
	}
	if typ < 0 {
		return step{unserved: clip(req.GetTypeUrl())}, nil
	}
	t := &m.types[typ]
	if err := m.bound(len(req.GetResourceNames())); err != nil {
		return step{}, err
	}
	st := step{typ: typ, url: t.url}
	names := m.names(req.GetResourceNames(), &st)
	switch nonce := req.GetResponseNonce(); {
	case t.seq == 0 || nonce == "":
		t.take(names, req, &st)
	case nonce != t.nonce:
		return step{}, nil
	default:
		t.answer(req, &st)
		t.replace(names, m.mark(), &st)
	}
	return st, m.bound(len(t.entries))
}

// bound refuses more names than a stream may hold.
func (m *sotw) bound(names int) error {
	if names <= m.limits.MaxNames {
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "a stream may hold %d names of a type, this one asks for %d", m.limits.MaxNames, names)
}

// open looks at the node, which counts in the first request only.
func (m *sotw) open(req *discovery.DiscoveryRequest) error {
	if m.started {
		return nil
	}
	m.started = true
	id := req.GetNode().GetId()
	switch {
	case len(id) > m.limits.MaxNodeID:
		return status.Errorf(codes.InvalidArgument, "node.id has %d bytes, at most %d are allowed", len(id), m.limits.MaxNodeID)
	case id == "" && m.limits.RequireNode:
		return status.Error(codes.InvalidArgument, "the first request must have a node.id")
	}
	m.node = id
	return nil
}

// typeOf returns the index of a type, or -1 for one that is not served, which is
// ignored on a stream of several types: the protocol has no answer to it.
func (m *sotw) typeOf(url string) (int, error) {
	if url == "" {
		url = m.implied
	}
	typ := slices.IndexFunc(m.types, func(t sotwType) bool { return t.url == url })
	switch {
	case url == "":
		return 0, status.Error(codes.InvalidArgument, "type_url is required on an aggregated stream")
	case m.implied != "" && url != m.implied:
		return 0, status.Errorf(codes.InvalidArgument, "type_url is %q, this service has %q only", clip(url), m.implied)
	}
	return typ, nil
}

// names returns the names that can be subscribed to. None and "*" are no
// subscription; a name that is too long is refused like one that is unknown.
func (m *sotw) names(asked []string, st *step) []string {
	names := asked[:0]
	for _, name := range asked {
		switch {
		case name == "" || name == "*":
		case len(name) > m.limits.MaxNameLength:
			st.refused = append(st.refused, name)
		default:
			names = append(names, name)
		}
	}
	return names
}

// mark returns a number for this request that no entry bears.
func (m *sotw) mark() uint64 {
	m.seq++
	return m.seq
}

// take adds names. One that the client asks for again, with neither nonce nor
// version although it acknowledged it, was forgotten by the client: sent again.
// (One still in flight is not: requests and responses cross.)
func (t *sotwType) take(names []string, req *discovery.DiscoveryRequest, st *step) {
	forgot := req.GetVersionInfo() == "" && req.GetResponseNonce() == ""
	for _, name := range names {
		e, isNew := t.add(name)
		switch {
		case isNew:
			st.added = append(st.added, e)
		case forgot && e.sent != nil && e.seq <= t.acked:
			t.resend(e)
			st.woken = true
		}
	}
}

// answer takes an acknowledgement or refusal of the last response. A request with
// another version than that response's only changes the names.
func (t *sotwType) answer(req *discovery.DiscoveryRequest, st *step) {
	st.version = t.version
	switch {
	case req.GetErrorDetail() != nil:
		st.nacked = t.nack(t.seq)
		st.reason = clip(req.GetErrorDetail().GetMessage())
	case req.GetVersionInfo() == t.version:
		st.acked = t.ack(t.seq)
		st.woken = len(t.dirty) > 0
	}
}

// replace makes names the whole list. mark tells the listed from the others
// without a second set of thousands of names.
func (t *sotwType) replace(names []string, mark uint64, st *step) {
	listed := 0
	for _, name := range names {
		e, isNew := t.add(name)
		if isNew {
			st.added = append(st.added, e)
		}
		if e.mark != mark {
			e.mark = mark
			listed++
		}
	}
	if listed == len(t.entries) {
		return
	}
	for name, e := range t.entries {
		if e.mark != mark {
			st.dropped = append(st.dropped, e)
			t.drop(name)
		}
	}
}

// changed marks a name for another look.
func (m *sotw) changed(typ int, name string) { m.types[typ].changed(name) }

// due returns what to look up next: of one type, in the order of the types.
func (m *sotw) due(now time.Time) (typ int, names []string) {
	for i := range m.types {
		if names := m.types[i].due(now); len(names) > 0 {
			return i, names
		}
	}
	return 0, nil
}

// respond turns the source's answers into the next response; false where there is
// nothing to say.
func (m *sotw) respond(typ int, found []lookup, now time.Time) (*discovery.DiscoveryResponse, batch, bool) {
	t := &m.types[typ]
	seq := m.seq + 1
	b := t.choose(found, seq, now)
	if len(b.resources) == 0 {
		return nil, b, false
	}
	m.seq, t.seq = seq, seq
	t.nonce = m.prefix + "-" + strconv.FormatUint(seq, 36)
	t.version = versionOf(b.resources)
	b.version = t.version
	return &discovery.DiscoveryResponse{
		VersionInfo: t.version, TypeUrl: t.url, Nonce: t.nonce, Resources: bodies(b.resources),
	}, b, true
}

// wake returns when due has something to say without a change; zero for never.
func (m *sotw) wake() (at time.Time) {
	for i := range m.types {
		if r := m.types[i].release; !r.IsZero() && (at.IsZero() || r.Before(at)) {
			at = r
		}
	}
	return at
}

// nodeID returns the node.id of the first request.
func (m *sotw) nodeID() string { return m.node }

// all yields the entries of all types.
func (m *sotw) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for i := range m.types {
			for e := range m.types[i].all() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

func bodies(resources []*Resource) []*anypb.Any {
	out := make([]*anypb.Any, len(resources))
	for i, r := range resources {
		out[i] = r.Body
	}
	return out
}

// versionOf returns the version of a response: that of its content, so that it
// means the same on every stream and after a restart.
func versionOf(resources []*Resource) string {
	if len(resources) == 1 {
		return resources[0].Version
	}
	lines := make([]string, len(resources))
	for i, r := range resources {
		lines[i] = strconv.Quote(r.Name) + " " + strconv.Quote(r.Version)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:8])
}
