package xds

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// step is the outcome of a request.
type step struct {
	typ      int
	url      string
	added    []*entry // to watch, then look up
	dropped  []*entry // to stop watching
	refused  []string
	first    bool // request of the stream
	node     *core.Node
	wild     *wildcard // to watch, then list
	unwild   *wildcard // to stop watching
	unserved string    // the type URL, if it is not served
	woken    bool      // something became due
	acked    bool
	nacked   bool
	version  string    // of the acknowledged or rejected response; empty if another was sent since
	names    []string  // the rejected names
	atFault  *Resource // the one at fault, if that is known
	trying   bool      // the rejected response was a try
	left     int       // resources that the client refuses
	reason   string
}

// task is a stream's next work item: listing a type or looking up names.
type task struct {
	typ   int
	list  bool
	names []string
}

// machine is the protocol of one stream in one dialect, without I/O.
type machine[Q, R any] interface {
	request(Q) (step, error)
	changed(typ int, name string)
	relist(typ int)
	listed(typ int, names []string, whole bool) (added, dropped []*entry)
	due(now time.Time) (task, bool)
	respond(typ int, found []lookup, now time.Time) (response R, b batch, ok bool)
	wake() time.Time
	nodeID() string
	has(typ int, names []string, tag string) bool
	cleared(typ int) (left int, news bool)
	stop()
}
