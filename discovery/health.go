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

// ready returns nil, or why a new stream would not be served.
func (s *Server) ready() error {
	if s.sessions.isDraining() {
		return errDraining
	}
	return s.cfg.Ready()
}

// Probes serves /healthz, always 200, and /readyz, 200 or 503 with the reason as text.
// It is unauthenticated: do not expose it publicly.
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

// health is the gRPC health service, open to anyone. It has no Watch, because a stream
// open to anyone would cost resources.
type health struct {
	healthv1.UnimplementedHealthServer
	server *Server
}

// Check reports whether streams are served, for the server as a whole.
func (h health) Check(_ context.Context, req *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if req.GetService() != "" {
		return nil, status.Error(codes.NotFound, "unknown service: use \"\"")
	}
	out := healthv1.HealthCheckResponse_SERVING
	if h.server.ready() != nil {
		out = healthv1.HealthCheckResponse_NOT_SERVING
	}
	return &healthv1.HealthCheckResponse{Status: out}, nil
}
