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

// Limits bound what one remote cluster takes of our memory, whatever its API server
// sends. One that exceeds them is failed: its watches end, and nothing is held of it. It
// is tried again after a sixtieth of [Config].GiveUp, then after twice as long each time,
// and no more when that has gone on for GiveUp, until its kubeconfig changes. The local
// cluster has no limits: who runs its API server runs this service, which without it
// would have nothing to serve.
type Limits struct {
	// Bytes are those of the Secrets and ConfigMaps as they are held, with 1 KiB for each
	// object itself. While all is read anew, they are held twice. Default: 128 MiB.
	Bytes int64
	// Objects are the Secrets and ConfigMaps. Default: 100,000.
	Objects int
	// Response is the size of a list's page and of a watch's event, in bytes of JSON, each
	// value in it counted 256 bytes longer: an empty one can take as much when it is read.
	// Pages that are longer are asked for with fewer objects, so that this is what one
	// object may have. All other answers have 1 MiB. Default: 8 MiB.
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
		return fmt.Errorf("the limits of %d bytes, %d objects and a response of %d bytes cannot be less than nothing", l.Bytes, l.Objects, l.Response)
	}
	return nil
}

// excess is what was too much, in a sentence.
type excess struct{ sentence string }

func (e *excess) Error() string { return e.sentence }

func excessf(format string, args ...any) *excess { return &excess{fmt.Sprintf(format, args...)} }

// budget is what a cluster takes of its limits. It is safe for concurrent use.
type budget struct {
	limits Limits // zero: none
	full   chan error

	mu   sync.Mutex
	held map[*ledger]struct{}
}

func newBudget(limits Limits) *budget {
	return &budget{limits: limits, full: make(chan error, 1), held: map[*ledger]struct{}{}}
}

func (b *budget) limited() bool { return b.limits != (Limits{}) }

// exceed tells once what was too much first; the fleet then ends the cluster.
func (b *budget) exceed(what error) {
	select {
	case b.full <- what:
	default:
	}
}

// check is called with the lock held.
func (b *budget) check() error {
	var bytes int64
	objects := 0
	for l := range b.held {
		bytes += l.bytes
		objects += len(l.sizes)
	}
	switch {
	case objects > b.limits.Objects:
		return excessf("it has more than %d secrets and config maps, which are the most that are held of a remote cluster", b.limits.Objects)
	case bytes > b.limits.Bytes:
		return excessf("its secrets and config maps take more than %d bytes, which are the most that are held of a remote cluster", b.limits.Bytes)
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

// clear is for when all is read anew.
func (l *ledger) clear() {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	l.sizes, l.bytes = map[cache.ObjectName]int64{}, 0
}

// put takes an object that is there now. The error is an [excess].
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
