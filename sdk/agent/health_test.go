package agent_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// gated is an authority that signs once its gate is open.
type gated struct {
	*catest.CA
	gate chan struct{}
}

func (g gated) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	select {
	case <-g.gate:
		return g.CA.CSRSign(ctx, req)
	case <-ctx.Done():
		return ca.Certificate{}, ctx.Err()
	}
}

func healthOf(t *testing.T, socket string) healthv1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return healthv1.NewHealthClient(conn)
}

// Its roots alone allow no connection: they are there before the certificate.
func TestHealthShowsWhetherACertificateIsThere(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	authority := gated{catest.NewCA(catest.Options{}), make(chan struct{})}
	cfg := config(t, authority.CA)
	cfg.Authorities[0].Client = authority
	a, err := agent.New(cfg)
	must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for len(a.Ready()) != 1 { // the roots
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			t.Fatal("the roots are not there")
		}
	}
	client := healthOf(t, cfg.Socket.Path)
	watch, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	must(t, err)
	told := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Fatalf("watched %v, %v; want %s", got, err, want)
		}
		if got, err := client.Check(ctx, &healthv1.HealthCheckRequest{}); err != nil || got.GetStatus() != want {
			t.Errorf("checked %v, %v; want %s", got, err, want)
		}
		if got, err := client.List(ctx, &healthv1.HealthListRequest{}); err != nil || got.GetStatuses()[""].GetStatus() != want {
			t.Errorf("listed %v, %v; want %s", got, err, want)
		}
	}
	told(healthv1.HealthCheckResponse_NOT_SERVING)
	close(authority.gate)
	told(healthv1.HealthCheckResponse_SERVING)
	stop()
	for err == nil { // NOT_SERVING, unless the end comes first
		var got *healthv1.HealthCheckResponse
		if got, err = watch.Recv(); err == nil && got.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("while it ends: %v", got)
		}
	}
	if !errors.Is(err, io.EOF) && status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// In an agent of many identities, certificates come with their callers.
func TestHealthOfAnAgentWithoutCertificatesOfItsOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.Secrets = cfg.Secrets[1:]
	if cfg.Secrets[0].Kind != secret.TrustBundle {
		t.Fatal("not the bundle")
	}
	a, err := agent.New(cfg)
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(t.Context()) }()
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch, err := healthOf(t, cfg.Socket.Path).Watch(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
	must(t, err)
	for {
		got, err := watch.Recv()
		must(t, err)
		if got.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return
		}
	}
}
