package clock

import "time"

// startup is long enough for an authority that is there to answer, and short enough for the
// deadline of a client that waits for its first reply.
const startup = 5 * time.Second

// Startup is the first 5 seconds after the start of a server. What other trust domains publish
// takes a moment to come back after a restart, and a client that was answered without it would drop
// what it has; so replies that would lack it wait that long. Later they do not wait for
// any: an outage of a foreign source must not keep what is there from new clients.
type Startup struct{ ends time.Time }

// BeginStartup returns the startup of a server that starts now.
func BeginStartup() Startup { return Startup{time.Now().Add(startup)} }

// Left returns how much of it is left; zero once it is over.
func (s Startup) Left() time.Duration { return max(0, time.Until(s.ends)) }
