package agent

import (
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// streamsInterval is how often the open streams are checked.
const streamsInterval = 30 * time.Second

// namesConfigured returns the configured secrets of an agent that has rules for names on demand.
func (s *start) namesConfigured() (configured []secret.Status, rules bool) {
	if all, ok := s.agent.OnDemand(); !ok || len(all.Rules) == 0 {
		return nil, false
	}
	return s.agent.Status(), true
}

// watchStreams logs once if clients ask for names on demand by state of the world, and once if they open
// a stream for each, until stop, which waits for its end.
func watchStreams(r *status.Recorder, configured func() (all []secret.Status, rules bool), log *slog.Logger) (stop func()) {
	quit := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(streamsInterval)
		defer ticker.Stop()
		logged := map[bool]bool{} // by whether it is state of the world
		for len(logged) < 2 {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			found := streamsOnDemand(r, configured)
			if sotw, trouble := found.StateOfTheWorld > 0, found.Trouble(); trouble != "" && !logged[sotw] {
				logged[sotw] = true
				log.Warn("a proxy asks for names on demand in a way that fails handshakes", "problem", trouble)
			}
		}
	})
	return func() { close(quit); watching.Wait() }
}

// streamsOnDemand asks the agent for its secrets only where the streams alone show a problem.
func streamsOnDemand(r *status.Recorder, configured func() (all []secret.Status, rules bool)) (none status.OnDemandStreams) {
	if r.OnDemandStreams(nil).Trouble() == "" {
		return none
	}
	all, rules := configured()
	if !rules {
		return none
	}
	return r.OnDemandStreams(all)
}
