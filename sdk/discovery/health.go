package discovery

import (
	"context"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

var errDraining = errors.New("the server is shutting down")

// ready returns nil, or why a stream that came now would not be answered.
func (s *Server) ready() error {
	if s.roster.isDraining() {
		return errDraining
	}
	return s.cfg.Ready()
}

// Probes answers /healthz, always with 200, and /readyz, with 200 or with 503 and the
// reason as text. It tells whoever asks: do not show it to the world.
func (s *Server) Probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.ready()) })
	return mux
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, shown(err.Error())+"\n") // the client may be gone
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// health is gRPC's own probe, for anybody. It has no Watch, as a stream for anybody
// would be a stream that costs.
type health struct {
	healthv1.UnimplementedHealthServer
	server *Server
}

// Check tells whether streams are answered. Only the server as a whole is known.
func (h health) Check(_ context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if req.GetService() != "" {
		return nil, status.Error(codes.NotFound, "only the service \"\" is known")
	}
	out := healthv1.HealthCheckResponse_SERVING
	if h.server.ready() != nil {
		out = healthv1.HealthCheckResponse_NOT_SERVING
	}
	return &healthv1.HealthCheckResponse{Status: out}, nil
}
