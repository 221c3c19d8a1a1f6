package grpcsocket

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// healthEvery is how often a Watch looks. Secrets send no notice of their expiry.
const healthEvery = time.Second

// checked is the standard health service of this server, the service "". It looks when it is asked,
// so that a server without a Watch has nothing to do.
type checked struct {
	*health.Server
	serving func() bool

	mu       sync.Mutex
	begun    uint64 // looks
	counts   uint64 // the latest look whose result is set
	watchers int
	stop     context.CancelFunc // of the goroutine that looks for all of them
}

func newHealth(serving func() bool) *checked {
	return &checked{Server: health.NewServer(), serving: serving}
}

// look sets the current status, unless a look that began later has. After Shutdown, that stays
// NOT_SERVING.
func (h *checked) look() {
	h.mu.Lock()
	h.begun++
	mine := h.begun
	h.mu.Unlock()
	now := healthv1.HealthCheckResponse_NOT_SERVING
	if h.serving() {
		now = healthv1.HealthCheckResponse_SERVING
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if mine > h.counts {
		h.counts = mine
		h.SetServingStatus("", now)
	}
}

// Check implements [healthv1.HealthServer].
func (h *checked) Check(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	h.look()
	return h.Server.Check(ctx, in)
}

// List implements [healthv1.HealthServer].
func (h *checked) List(ctx context.Context, in *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	h.look()
	return h.Server.List(ctx, in)
}

// Watch implements [healthv1.HealthServer].
func (h *checked) Watch(in *healthv1.HealthCheckRequest, to grpc.ServerStreamingServer[healthv1.HealthCheckResponse]) error {
	h.look()
	h.join()
	defer h.leave()
	return h.Server.Watch(in, to)
}

func (h *checked) join() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers++; h.watchers == 1 {
		var ctx context.Context
		ctx, h.stop = context.WithCancel(context.Background())
		go h.lookAgain(ctx)
	}
}

func (h *checked) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers--; h.watchers == 0 {
		h.stop()
	}
}

func (h *checked) lookAgain(ctx context.Context) {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			h.look()
		case <-ctx.Done():
			return
		}
	}
}
