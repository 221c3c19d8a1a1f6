// Package spiresecret serves secrets from a SPIFFE Workload API, such as the one of SPIRE's
// agent. [New] makes a [secret.Source] that keeps one stream open, takes the X.509-SVIDs
// and trust bundles that [Config].Secrets selects, and serves them once verified. While the
// Workload API is away, what is held is served until it expires. One goroutine takes what
// comes; a lock guards what is served.
//
// The protocol: https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Workload_API.md
package spiresecret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/rotation"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config is where the Workload API is, and which secrets to take from it.
type Config struct {
	// Socket is the Workload API's unix socket: a path, or unix:///path, as in
	// SPIFFE_ENDPOINT_SOCKET. It need not exist yet. Required without Dial.
	Socket string
	// UIDs are users who may serve the socket, besides the agent's own user and root: who
	// serves it decides which roots this agent trusts. Default: none.
	UIDs []uint32
	// Dial replaces Socket and UIDs. It opens a new connection. Default: none.
	Dial func(context.Context) (net.Conn, error)
	// Secrets are the names to serve. Default: "default", the first X.509-SVID, and
	// "ROOTCA", its trust bundle.
	Secrets []Spec
	// Federated also serves the trust bundle of each trust domain that the Workload API sends,
	// the workload's own and federated ones, as "spiffe://example.com". Default: false.
	Federated bool

	// Observe receives events, for metrics; see [secret.Config]. A failure of the stream
	// is one of each key pair, or has no secret if there is none. Default: none.
	Observe func(secret.Event)
	// Now is the wall clock. Default: the system clock.
	Now func() time.Time
	// Log receives no key. Default: [slog.Default].
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if len(c.Secrets) == 0 {
		c.Secrets = []Spec{{Name: "default", Kind: secret.KeyPair}, {Name: "ROOTCA", Kind: secret.TrustBundle}}
	}
	if c.Dial == nil {
		c.Dial = dialer(c.Socket, c.UIDs)
	}
	if c.Observe == nil {
		c.Observe = func(secret.Event) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	c.Log = loglimit.Limit(cmp.Or(c.Log, slog.Default()))
	return c
}

// Source is a [secret.Source] backed by a Workload API. All methods are safe for concurrent
// use.
type Source struct {
	config  Config
	entries []*entry // immutable; bundles first, as chains need them
	byName  map[string]*entry

	mu     sync.Mutex
	closed bool

	bundles secret.Map // of trust domains, by ID; for Config.Federated
	domains []string   // the IDs that bundles has, sorted; mu guards it

	// Owned by the run goroutine:
	began   time.Time                    // of the last session
	waits   rotation.Waits               // after failed ones
	failing bool                         // no reply has come since the last one
	said    string                       // the last failure of a session that was logged
	early   *workloadv1.X509SVIDResponse // has a certificate that is not valid yet

	lists  []byte        // what the Workload API sent last, PEM; mu guards it
	listed chan struct{} // closed when lists changes, and replaced; mu guards it

	lent     bool           // an [Authority] has it, and the Manager reports on what is served
	answered chan struct{}  // closed once the Workload API has answered, or a session has failed
	notices  sync.WaitGroup // of an Authority

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   chan struct{}
}

var _ secret.Source = (*Source)(nil)

// New returns a Source that connects to the Workload API until [Source.Close]. It does not
// wait: a Workload API that is away does not make it fail, and is called again. An error is
// about config.
func New(config Config) (*Source, error) { return open(config, false) }

func open(config Config, lent bool) (*Source, error) {
	if config.Socket == "" && config.Dial == nil {
		return nil, errors.New("spiresecret: Config.Socket is empty; name the unix socket of a SPIFFE Workload API")
	}
	if config.Dial == nil {
		var err error
		if config.Socket, err = unixsocket.ParsePath(config.Socket); err != nil {
			return nil, fmt.Errorf("spiresecret: invalid Config.Socket: %w", err)
		}
	}
	config = config.withDefaults()
	s := &Source{config: config, byName: map[string]*entry{}, lent: lent, listed: make(chan struct{}), answered: make(chan struct{}), done: make(chan struct{})}
	for _, spec := range config.Secrets {
		if err := spec.check(); err != nil {
			return nil, fmt.Errorf("spiresecret: %w", err)
		}
		if s.byName[spec.Name] != nil {
			return nil, fmt.Errorf("spiresecret: secret %.256q is there twice", spec.Name)
		}
		e := &entry{spec: spec}
		s.byName[spec.Name] = e
		s.entries = append(s.entries, e)
	}
	slices.SortStableFunc(s.entries, func(a, b *entry) int { return cmp.Compare(b.spec.Kind, a.spec.Kind) })
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.run(s.ctx)
	return s, nil
}

// Close ends the stream and notifies watchers; Peek then returns [secret.ErrClosed]. Close
// is idempotent and returns nil.
func (s *Source) Close() error {
	s.cancel()
	<-s.done
	s.notices.Wait()
	for _, notify := range s.end() {
		notify()
	}
	return nil
}

// end marks the Source as closed and, the first time, returns the notices to send.
func (s *Source) end() (tell []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, e := range s.entries {
		tell = append(tell, e.watchers.All()...)
	}
	for _, id := range s.domains {
		tell = append(tell, func() { s.bundles.Delete(id) })
	}
	return tell
}

// Peek returns the item held for name, or an error that is [secret.ErrUnknown],
// [secret.ErrNotReady], with the reason why the Workload API gave nothing to serve, or
// [secret.ErrClosed].
func (s *Source) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	if s.isDomain(name) {
		return s.peekDomain(caller, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[name]
	switch {
	case s.closed:
		return nil, secret.ErrClosed
	case e == nil:
		return nil, secret.Unknown(name)
	case e.held == nil, e.held.Expired(s.config.Now()):
		return nil, secret.NotReady(name, e.failure)
	}
	return e.held, nil
}

// Watch calls notify after each new item for name and when the Source closes; see
// [secret.Source]. An error is [secret.ErrUnknown] or [secret.ErrClosed].
func (s *Source) Watch(caller secret.Caller, name string, notify func(name string)) (stop func(), err error) {
	if s.isDomain(name) {
		return s.watchDomain(caller, name, notify)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[name]
	switch {
	case s.closed:
		return nil, secret.ErrClosed
	case e == nil:
		return nil, secret.Unknown(name)
	}
	return e.watchers.Add(func() { notify(name) }), nil
}

// Status returns the state of every secret, sorted by name.
func (s *Source) Status() []secret.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []secret.Status
	for _, e := range s.entries {
		all = append(all, e.status(s.config.Now()))
	}
	slices.SortFunc(all, func(a, b secret.Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}
