package pluginhost

import "google.golang.org/grpc"

// What follows is for who tests a provider and does to its process what hosts and
// machines do to it.

// Conn is the connection to the provider; nil before [Probe.Connect].
func (p *Probe) Conn() grpc.ClientConnInterface {
	if process, ok := p.life.(*process); ok && process.conn != nil {
		return process.conn
	}
	return nil
}

// EndLifeline does what the end of this process would: the provider is to exit.
func (p *Probe) EndLifeline() {
	if process, ok := p.life.(*process); ok {
		process.pipes.endLifeline()
	}
}

// Ended is closed when the process has ended; Err then says how.
func (p *Probe) Ended() <-chan struct{} { return p.life.Ended() }

// Err says how the process ended.
func (p *Probe) Err() error { return p.life.Err() }
