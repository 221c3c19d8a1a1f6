package sds_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
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
