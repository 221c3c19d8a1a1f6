package sds_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

func probe(t *testing.T, path string, within time.Duration) (*sds.Peer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return sds.Probe(ctx, path)
}

func TestProbeRecognisesSDSServerAndUser(t *testing.T) {
	peer, err := probe(t, start(t, secrettest.New(), sds.Config{}), patience)
	if err != nil || peer == nil || int(peer.UID) != os.Geteuid() || peer.PID != 0 && int(peer.PID) != os.Getpid() {
		t.Errorf("got %v, %v", peer, err)
	}
}

func TestProbeReportsNonSDSServers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for name, serve := range map[string]struct {
		with   func(net.Listener)
		within time.Duration
		want   string
	}{
		"hangs":     {func(net.Listener) {}, time.Second, "does not answer"},
		"closes":    {func(l net.Listener) { acceptEach(l, func(net.Conn) {}) }, patience, "does not speak HTTP/2"},
		"another":   {func(l net.Listener) { acceptEach(l, func(c net.Conn) { _, _ = c.Write([]byte("220 mail\r\n")) }) }, patience, "does not speak HTTP/2"},
		"other RPC": {func(l net.Listener) { _ = grpc.NewServer().Serve(l) }, patience, "has no SDS"},
	} {
		path := filepath.Join(proctest.Folder(t), "socket")
		listener := listenPlain(t, path)
		served := make(chan struct{})
		go func() { defer close(served); serve.with(listener) }()
		peer, err := probe(t, path, serve.within)
		if peer == nil || err == nil || !strings.Contains(err.Error(), serve.want) {
			t.Errorf("%s: got %v, %v", name, peer, err)
		}
		_ = listener.Close()
		<-served
	}
}

func acceptEach(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		serve(conn)
		_ = conn.Close()
	}
}

func TestProbeOfDeadSocketFindsNoPeer(t *testing.T) {
	path := filepath.Join(proctest.Folder(t), "socket")
	listener := listenPlain(t, path)
	listener.SetUnlinkOnClose(false)
	_ = listener.Close()
	for _, path := range []string{path, path + "-none"} {
		if peer, err := probe(t, path, patience); peer != nil || err == nil {
			t.Errorf("%s: got %v, %v", path, peer, err)
		}
	}
}
