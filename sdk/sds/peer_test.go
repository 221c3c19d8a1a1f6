package sds_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

func TestOnlyPolicyPeersAreAnswered(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	for name, c := range map[string]struct {
		policy sds.Policy
		uid    uint32
		want   string
	}{
		"own user":         {sds.Policy{}, 0, "SERVING"},
		"another":          {sds.Policy{}, 65534, "PermissionDenied: uid 65534, gid 65534 is not allowed to connect"},
		"allowed user":     {sds.Policy{UIDs: []uint32{65534}}, 65534, "SERVING"},
		"allowed group":    {sds.Policy{GIDs: []uint32{65534}}, 65534, "SERVING"},
		"refused by group": {sds.Policy{Refuse: func(p sds.Peer) error { return fmt.Errorf("pid known: %v", p.PID > 0) }}, 0, "PermissionDenied: pid known: true"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := proctest.Folder(t)
			must(t, os.Chmod(dir, 0o755))
			var log logtest.Log
			socket := start(t, secrettest.New(), sds.Config{Path: filepath.Join(dir, "socket"), Mode: 0o666, Policy: c.policy, Log: log.Logger()})
			for range 3 {
				if got := askAs(t, dir, socket, c.uid); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			}
			want := 0 // once a minute
			if c.want != "SERVING" {
				want = 1
			}
			line := fmt.Sprintf("refused a peer of the socket\" socket=%s uid=%d", socket, c.uid)
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("%q is logged %d times, want %d: %s", line, got, want, log.String())
			}
		})
	}
}

// A message has up to 4 MiB: of a peer that is refused, none is read.
func TestRefusedPeerIsAnsweredBeforeItsMessage(t *testing.T) {
	refuse := func(sds.Peer) error { return errors.New("not you") }
	socket := start(t, secrettest.New(), sds.Config{Policy: sds.Policy{Refuse: refuse}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	call, err := dial(t, socket).NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, secretv3.SecretDiscoveryService_FetchSecrets_FullMethodName)
	must(t, err)
	if err := call.RecvMsg(&discoveryv3.DiscoveryResponse{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v", err)
	}
}

// askAs runs this test's program as another user, to ask for the server's health.
func askAs(t *testing.T, dir, socket string, uid uint32) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	program := filepath.Join(dir, "ask")
	if err := os.WriteFile(program, self, 0o755); err != nil { // where that user may read it
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = []string{asChild + "=" + socket}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func askHealth(socket string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	answer, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	return answer.Status.String()
}
