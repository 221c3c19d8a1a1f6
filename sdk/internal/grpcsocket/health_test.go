package grpcsocket

import (
	"testing"
	"testing/synctest"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// Of two looks at the same time, the one that began later is the one that counts: else a slow one
// would bring back what is over.
func TestSlowLookAtHealthDoesNotUndoALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, held := make(chan struct{}), true
		h := newHealth(nil)
		h.serving = func() bool {
			if held {
				held = false
				<-slow
				return true
			}
			return false
		}
		go h.look()
		synctest.Wait()
		h.look()
		close(slow)
		synctest.Wait()
		if got, err := h.Server.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil || got.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("after both: %v, %v", got, err)
		}
	})
}
