//go:build unix

package provider_test

import (
	"encoding/base64"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/countersign-dev/countersign/internal/host/selfsigned"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestSocketWithAutoMTLSAdmitsTheHostAndNoOther(t *testing.T) {
	ours, theirs := newPair(t), newPair(t)
	c := byHand(t, false, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, wire.EnvClientCert+"="+string(ours.CertPEM))
	})
	fields := strings.Split(c.line, "|")
	cert, err := base64.RawStdEncoding.DecodeString(fields[5])
	must(t, err)
	for _, peer := range []struct {
		pair *selfsigned.Pair
		want bool
	}{{theirs, false}, {ours, true}} {
		conn, err := grpc.NewClient("unix://"+fields[3], grpc.WithTransportCredentials(credentials.NewTLS(peer.pair.Accept(cert))))
		must(t, err)
		defer conn.Close()
		_, err = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: wire.HealthService})
		if (err == nil) != peer.want {
			t.Errorf("host %v: %v", peer.want, err)
		}
	}
}

func TestMalformedHostCertificateIsRefused(t *testing.T) {
	proctest.NeedsProcess(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(cmd.Environ(), speaks+"=1", promptExit, wire.MagicCookieKey+"="+wire.MagicCookieValue,
		wire.EnvVersions+"=1", wire.EnvSocketDir+"="+t.TempDir(), wire.EnvClientCert+"=none")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "PLUGIN_CLIENT_CERT") {
		t.Errorf("got %v: %s", err, out)
	}
}

// Stock hosts wait two seconds for a plugin that does not end by Shutdown, and then kill it.
func TestShutdownEndsProvider(t *testing.T) {
	c := byHand(t, false)
	conn := dial(t, nil, c.line)
	must(t, c.Configure(t.Context(), nil))
	_ = conn.Invoke(t.Context(), "/plugin.GRPCController/Shutdown", new(emptypb.Empty), new(emptypb.Empty)) // may end before the reply
	c.logged(t, "closed")
	if err := c.exit(t); err != nil {
		t.Errorf("exit: %v", err)
	}
}

func newPair(t *testing.T) *selfsigned.Pair {
	t.Helper()
	pair, err := selfsigned.New()
	must(t, err)
	return pair
}
