package proxy

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// restarts are the waits before a restart.
var restarts = rotation.Row{First: time.Second, Most: 30 * time.Second}

// healthyAfter is when earlier restarts no longer count.
const healthyAfter = time.Minute

// recovery decides how long to wait before a restart.
type recovery struct {
	waits rotation.Waits
	row   int // consecutive restarts that ran for less than healthyAfter
}

// next returns how long to wait after a life of that length, or false if the limit is
// reached.
func (r *recovery) next(lived time.Duration, limit int) (time.Duration, bool) {
	if lived >= healthyAfter {
		*r = recovery{}
	}
	if r.row >= limit {
		return 0, false
	}
	r.row++
	return r.waits.Next(restarts), true
}
