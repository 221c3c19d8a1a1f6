package proxy

import "time"

// State is the state of the proxy.
type State string

// The states.
const (
	Waiting  State = "waiting"  // for the first secrets
	Running  State = "running"  // possibly beside the process it replaces
	Backoff  State = "backoff"  // it exited and will be restarted
	Draining State = "draining" // it takes no new connections and finishes what it has begun
	Stopping State = "stopping" // it was sent SIGTERM
	Ended    State = "ended"    // will not be restarted
)

// States lists all states.
func States() []State { return []State{Waiting, Running, Backoff, Draining, Stopping, Ended} }

// Status is the state of the proxy for operators.
type Status struct {
	Command   string    `json:"command"`
	State     State     `json:"state"`
	Since     time.Time `json:"since"`
	PID       int       `json:"pid,omitempty"`
	OldPID    int       `json:"old_pid,omitempty"` // drained by a hot restart
	Epoch     int       `json:"epoch"`
	Restarts  int       `json:"restarts"`
	Reloads   int       `json:"reloads"`
	Failed    int       `json:"failed_reloads"`
	Locality  string    `json:"locality,omitempty"`
	LastError string    `json:"last_error,omitempty"`
	NextStart time.Time `json:"next_start,omitzero"`
}

// Status returns the current status.
func (p *Proxy) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	s.Locality = p.locality
	return s
}

// publish copies the loop's state.
func (p *Proxy) publish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.PID, p.status.Epoch, p.status.OldPID = 0, 0, 0
	if p.current != nil {
		p.status.PID, p.status.Epoch = p.current.PID(), p.current.epoch
	}
	if p.old != nil {
		p.status.OldPID = p.old.PID()
	}
	p.status.Restarts, p.status.Reloads, p.status.Failed = p.restarts, p.reloads, p.failedReloads
	p.status.LastError, p.status.NextStart = p.lastError, p.nextStart
}

// enter changes the state.
func (p *Proxy) enter(state State) {
	p.mu.Lock()
	p.status.State, p.status.Since = state, time.Now()
	p.mu.Unlock()
	p.publish()
}
