// Package lease makes one replica the leader by a Lease of Kubernetes, and lets nobody else
// call a CA. [Lease.Run] calls lead while the Lease is held; [Lease.Client] and [Lease.Issuer]
// refuse calls at any other time.
//
// Leader election by itself is no lock: a leader that was stopped beyond its lease (SIGSTOP, a
// suspended machine, a throttled container) acts for a moment before it notices. So each call
// first looks at a monotonic and at the wall clock, as a suspended machine stops the former.
// What is left is a stop between that look and the first byte of the request. The CA sees the
// request ID of the next leader's call then, so one that recognizes repeats makes one
// certificate.
//
// An engine belongs to one term: make it in lead, and close it before lead returns. That of a
// follower could learn nothing, and would overwrite the leader's records.
//
// The account needs the rights to get, create and update the Lease.
package lease

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/countersign-dev/countersign/internal/peers"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	defaultDuration = 15 * time.Second
	minDuration     = 3 * time.Second
	maxDuration     = 5 * time.Minute
)

// Config says which Lease to hold.
type Config struct {
	// Client is one of the home cluster. Required.
	Client kubernetes.Interface
	// Namespace and Name are those of the Lease. It is created if there is none. Required.
	Namespace, Name string
	// Identity tells this process apart from any other, also from the one before it in the
	// same container. Default: the host name and a random part.
	Identity string
	// Duration is how long the others wait after the last renewal of a leader that is gone:
	// whole seconds, from 3 s to 5 minutes. The Lease is renewed every fifth of it. Default: 15 s.
	Duration time.Duration
	// Now is the wall clock. Default: [clock.Wall].
	Now func() time.Time
	// Log receives the beginning and end of each term. Default: [slog.Default].
	Log *slog.Logger
}

// Lease is held in terms. It is safe for concurrent use.
type Lease struct {
	cfg  Config
	lock resourcelock.Interface
	term atomic.Pointer[term] // the latest

	mu     sync.Mutex
	holder string
	rival  bool      // another holds it, as far as is known
	gone   time.Time // when it was first missed after that; zero if it was not
	fault  string
}

// Status tells operators who leads.
type Status struct {
	Leading bool `json:"leading"`
	// Holder is the identity that was last seen in the Lease; empty if none was.
	Holder string `json:"holder,omitempty"`
	// Fault says why the Lease can be neither read nor written.
	Fault string `json:"fault,omitempty"`
}

// New checks the settings. It sends nothing.
func New(cfg Config) (*Lease, error) {
	cfg.Duration = cmp.Or(cfg.Duration, defaultDuration)
	peers.Defaults(&cfg.Identity, &cfg.Now, &cfg.Log)
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Name},
		Client:     cfg.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Identity},
	}
	return &Lease{cfg: cfg, lock: lock}, nil
}

func (c Config) check() error {
	if c.Client == nil {
		return errors.New("Client is required")
	}
	if len(validation.IsDNS1123Label(c.Namespace)) > 0 {
		return fmt.Errorf("namespace %.256q of the Lease is not the name of a namespace", c.Namespace)
	}
	if len(validation.IsDNS1123Subdomain(c.Name)) > 0 {
		return fmt.Errorf("name %.256q of the Lease: use lowercase letters, digits, hyphens and dots, 253 at most", c.Name)
	}
	if d := c.Duration; d < minDuration || d > maxDuration || d%time.Second != 0 {
		return fmt.Errorf("duration is %s; use whole seconds from %s to %s", d, minDuration, maxDuration)
	}
	return nil
}

// Held returns nil while the Lease is surely ours, and else a [ca.Unavailable].
func (l *Lease) Held() error {
	if t := l.term.Load(); t != nil && t.held() {
		return nil
	}
	return l.refusal()
}

func (l *Lease) refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := ""
	if l.fault != "" {
		said = ": " + l.fault
	}
	return ca.Errorf(ca.Unavailable, "this replica does not hold the Lease %s, whose holder is %q%s", l.name(), l.holder, said)
}

// Status returns the current status.
func (l *Lease) Status() Status {
	leading := l.Held() == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{leading, l.holder, l.fault}
}

// seen records the holder. It returns whether that is this process.
func (l *Lease) seen(holder string) bool {
	ours := holder == l.cfg.Identity
	holder = text.Clean(holder)
	l.mu.Lock()
	changed := l.holder != holder
	l.holder, l.rival, l.gone = holder, !ours && holder != "", time.Time{}
	l.mu.Unlock()
	if changed && !ours && holder != "" {
		l.cfg.Log.Info("another replica leads", "lease", l.name(), "holder", holder)
	}
	return ours
}

// lost reports whether another held the Lease when it was last seen.
func (l *Lease) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rival
}

// vacant returns an error while another may still lead, though its Lease was deleted: it may have
// been renewed until it was missed.
func (l *Lease) vacant() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rival && l.gone.IsZero() {
		l.gone = time.Now()
	}
	if left := l.cfg.Duration - time.Since(l.gone); l.rival && left > 0 {
		return fmt.Errorf("the Lease was deleted while %q held it: waiting for %s", l.holder, left.Round(time.Second))
	}
	return nil
}

// note records the outcome of a request. It logs the first fault and the end of the last.
func (l *Lease) note(err error) {
	fault := ""
	if err != nil {
		fault = text.Clean(err.Error())
	}
	l.mu.Lock()
	before := l.fault
	l.fault = fault
	l.mu.Unlock()
	switch {
	case before == "" && fault != "":
		l.cfg.Log.Warn("cannot reach the Lease", "lease", l.name(), "error", fault)
	case before != "" && fault == "":
		l.cfg.Log.Info("the Lease can be reached again", "lease", l.name())
	}
}

func (l *Lease) name() string { return l.cfg.Namespace + "/" + l.cfg.Name }
