package inbound

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const maxMessage = 4 << 20

// echo serves any method: it answers each message.
func echo(_ any, stream grpc.ServerStream) error {
	for {
		var m wrapperspb.BytesValue
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		if err := stream.SendMsg(&m); err != nil {
			return err
		}
	}
}

// serve serves on a unix socket until the test ends, and returns its path.
func serve(t *testing.T, sum *Sum) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "inbound") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	on, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(sum.Credentials(insecure.NewCredentials(), slog.New(slog.DiscardHandler))), grpc.UnknownServiceHandler(echo),
		grpc.MaxRecvMsgSize(maxMessage), grpc.StaticStreamWindowSize(64<<10), grpc.WaitForHandlers(true))
	done := make(chan error, 1)
	go func() { done <- server.Serve(on) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return path
}

// client opens a stream of an ordinary client.
func client(t *testing.T, path string) grpc.ClientStream {
	t.Helper()
	cc, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any/Echo")
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func call(t *testing.T, stream grpc.ClientStream, size int) {
	t.Helper()
	if err := stream.SendMsg(wrapperspb.Bytes(make([]byte, size))); err != nil {
		t.Fatal(err)
	}
	var got wrapperspb.BytesValue
	if err := stream.RecvMsg(&got); err != nil || len(got.GetValue()) != size {
		t.Fatalf("%d bytes, %v", len(got.GetValue()), err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

type waiting struct{ ctx context.Context }

func (w waiting) Read([]byte) (int, error) { <-w.ctx.Done(); return 0, w.ctx.Err() }

// stall opens streams that send all but the last byte of a message, and returns
// once they have all ended.
func stall(ctx context.Context, path string, streams, message int) {
	transport := &http.Transport{Protocols: &http.Protocols{}, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(message))
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			bytes := io.MultiReader(&once{prefix}, io.LimitReader(zeros{}, int64(message)-1), waiting{ctx})
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/any/Echo", bytes)
			if err != nil {
				panic(err)
			}
			request.Header.Set("Content-Type", "application/grpc")
			request.Header.Set("Te", "trailers")
			answer, err := transport.RoundTrip(request)
			if err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
	all.Wait()
}

type once struct{ b []byte }

func (o *once) Read(b []byte) (int, error) {
	if len(o.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, o.b)
	o.b = o.b[n:]
	return n, nil
}

func (s *Sum) taken() (bytes int64, connections int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, len(s.open)
}

// await waits until the sum is empty.
func await(t *testing.T, sum *Sum) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if bytes, connections := sum.taken(); bytes == 0 && connections == 0 {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%d bytes of %d connections are counted", bytes, connections)
		}
	}
}

// 200 streams would make a server hold 800 MiB; those of others are answered.
func TestUnfinishedRequestsAreBoundedInSum(t *testing.T) {
	sum := NewSum(8 << 20)
	path := serve(t, sum)
	good := client(t, path)
	call(t, good, 100)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var attackers sync.WaitGroup
	ended := make(chan struct{}, 20)
	for range 20 {
		attackers.Go(func() { stall(ctx, path, 10, maxMessage); ended <- struct{}{} })
	}
	late := time.After(2 * time.Minute)
	for finished := 0; finished < 18; { // what is left fits
		select {
		case <-ended:
			finished++
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatalf("the oldest are not ended, but %d", finished)
		}
		if bytes, _ := sum.taken(); bytes > 8<<20 {
			t.Fatalf("%d bytes are held", bytes)
		}
		call(t, good, 100)
	}
	call(t, good, maxMessage-100)
	stop()
	attackers.Wait()
	await(t, sum)
	call(t, good, 100)
}
