package sds_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

func TestNewPolicyEndsOnlyStreamsItForbids(t *testing.T) {
	secrets := secrettest.New(keyPair("1"))
	server, socket := startServer(t, secrets, sds.Config{})
	conn := dial(t, socket)
	stream := open(t, conn)
	stream.ask("default")
	stream.get()
	if n := server.SetPolicy(sds.Policy{UIDs: []uint32{1}}); n != 0 {
		t.Errorf("%d streams were ended by a policy that admits them", n)
	}
	secrets.Put(keyPair("2"))
	stream.get()

	nobody := sds.Policy{Refuse: func(sds.Peer) error { return errors.New("not today") }}
	if n := server.SetPolicy(nobody); n != 1 {
		t.Errorf("%d streams were ended, want 1", n)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v", err)
	}
	late := open(t, conn) // the connection is still there
	if _, err := late.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a new stream ended with %v", err)
	}
	server.SetPolicy(sds.Policy{})
	again := open(t, conn)
	again.ask("default")
	again.get()
}

// gRPC's own streams neither outlive a policy nor hold the end of the server.
func TestHealthAndReflectionStreamsEndWithThePolicyAndTheServer(t *testing.T) {
	server, socket := startServer(t, secrettest.New(), sds.Config{})
	conn := dial(t, socket)
	both := func() (ends []func() codes.Code) {
		health, err := healthv1.NewHealthClient(conn).Watch(with(t), &healthv1.HealthCheckRequest{})
		ends = append(ends, answered(t, health, err))
		reflection, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(with(t))
		if err == nil {
			err = reflection.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		}
		return append(ends, answered(t, reflection, err))
	}
	ends := both()
	server.SetPolicy(sds.Policy{UIDs: []uint32{1}}) // admits this user
	server.SetPolicy(sds.Policy{Refuse: func(sds.Peer) error { return errors.New("not today") }})
	for _, end := range ends {
		if code := end(); code != codes.PermissionDenied {
			t.Errorf("after the policy it ended with %s", code)
		}
	}
	server.SetPolicy(sds.Policy{})
	ends = both()
	began := time.Now()
	if err := server.Close(with(t)); err != nil || time.Since(began) > patience/2 {
		t.Errorf("closed after %s: %v", time.Since(began), err)
	}
	for _, end := range ends {
		if code := end(); code != codes.Unavailable {
			t.Errorf("after Close it ended with %s", code)
		}
	}
}

// answered waits for the first answer of a stream; end returns the status that the stream ends with.
func answered[M any](t *testing.T, stream grpc.ServerStreamingClient[M], err error) (end func() codes.Code) {
	t.Helper()
	if err == nil {
		_, err = stream.Recv()
	}
	must(t, err)
	return func() codes.Code {
		for err == nil { // health shows that the server closes before the stream ends
			_, err = stream.Recv()
		}
		return status.Code(err)
	}
}
