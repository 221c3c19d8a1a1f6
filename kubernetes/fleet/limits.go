package fleet

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	defaultBytes    = 128 << 20
	defaultObjects  = 100_000
	defaultResponse = 8 << 20
)

// Limits bounds the memory one remote cluster may use, whatever its API server sends. A
// cluster that exceeds it fails: its watches end and its objects are dropped. It is
// retried after a sixtieth of [Config].GiveUp, then after twice as long each time; once
// this has lasted for GiveUp, only after its kubeconfig changes. The local cluster has
// no limits: its operator also runs this service, which has no purpose without it.
type Limits struct {
	// Bytes limits Secrets and ConfigMaps as held in memory, plus 1 KiB per object.
	// During a full resync they are held twice. Default: 128 MiB.
	Bytes int64
	// Objects limits the number of Secrets and ConfigMaps. Default: 100,000.
	Objects int
	// Response limits a list page and a watch event, in bytes of JSON plus 256 bytes
	// per value: even an empty one can take as much once decoded. Larger pages are
	// requested again with fewer objects, so this bounds one object. All other
	// responses are limited to 1 MiB. With [Config].ClientsOnly it limits every response,
	// and one that exceeds it fails alone. Default: 8 MiB.
	Response int64
}

func (l *Limits) setDefaults() {
	if l.Bytes == 0 {
		l.Bytes = defaultBytes
	}
	if l.Objects == 0 {
		l.Objects = defaultObjects
	}
	if l.Response == 0 {
		l.Response = defaultResponse
	}
}

func (l Limits) check() error {
	if l.Bytes < 0 || l.Objects < 0 || l.Response < 0 {
		return fmt.Errorf("limits must not be negative: %d bytes, %d objects, response of %d bytes", l.Bytes, l.Objects, l.Response)
	}
	return nil
}

// excess describes an exceeded limit in one sentence.
type excess struct{ sentence string }

func (e *excess) Error() string { return e.sentence }

func excessf(format string, args ...any) *excess { return &excess{fmt.Sprintf(format, args...)} }

// budget tracks a cluster's use of its limits. It is safe for concurrent use.
type budget struct {
	limits  Limits // zero: none
	clients bool   // nothing is held: see Config.ClientsOnly
	full    chan error

	mu   sync.Mutex
	held map[*ledger]struct{}
}

func newBudget(limits Limits) *budget {
	return &budget{limits: limits, full: make(chan error, 1), held: map[*ledger]struct{}{}}
}

func (b *budget) limited() bool { return b.limits != (Limits{}) }

// exceed reports the first exceeded limit, once; the fleet then stops the cluster.
func (b *budget) exceed(what error) {
	select {
	case b.full <- what:
	default:
	}
}

// check requires the lock to be held.
func (b *budget) check() error {
	var bytes int64
	objects := 0
	for l := range b.held {
		bytes += l.bytes
		objects += len(l.sizes)
	}
	switch {
	case objects > b.limits.Objects:
		return excessf("more than %d secrets and config maps, the limit for a remote cluster", b.limits.Objects)
	case bytes > b.limits.Bytes:
		return excessf("secrets and config maps of more than %d bytes, the limit for a remote cluster", b.limits.Bytes)
	}
	return nil
}

// ledger has the size of each object that one informer holds.
type ledger struct {
	budget *budget
	sizes  map[cache.ObjectName]int64
	bytes  int64
}

func (b *budget) ledger() *ledger {
	l := &ledger{budget: b, sizes: map[cache.ObjectName]int64{}}
	b.held[l] = struct{}{}
	return l
}

// clear resets the ledger before a full resync.
func (l *ledger) clear() {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	l.sizes, l.bytes = map[cache.ObjectName]int64{}, 0
}

// put adds an object that now exists. The error is an [excess].
func (l *ledger) put(o metav1.Object) error {
	if !l.budget.limited() {
		return nil
	}
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	name, size := cache.MetaObjectToName(o), sizeOf(o)
	l.bytes += size - l.sizes[name]
	l.sizes[name] = size
	return l.budget.check()
}

func (l *ledger) drop(o metav1.Object) {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	name := cache.MetaObjectToName(o)
	l.bytes -= l.sizes[name]
	delete(l.sizes, name)
}
