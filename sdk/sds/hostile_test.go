package sds_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// witness is a well-behaved client on a server that others ill-treat.
type witness struct {
	*client
	socket  string
	source  *secrettest.Source
	version int
}

func startWitness(t *testing.T, cfg sds.Config) *witness {
	t.Helper()
	source := secrettest.New(keyPair("0"))
	w := &witness{socket: start(t, source, cfg), source: source}
	w.client = open(t, dial(t, w.socket))
	w.ask("default")
	w.get()
	return w
}

// served demands that the witness's stream gets a rotation, and that a new client is served,
// too.
func (w *witness) served() {
	w.t.Helper()
	w.version++
	version := fmt.Sprint(w.version)
	w.source.Put(keyPair(version))
	newcomer := open(w.t, dial(w.t, w.socket))
	newcomer.ask("default")
	for _, c := range []*client{w.client, newcomer} {
		if chain := c.get()["default"].GetTlsCertificate().GetCertificateChain().GetInlineBytes(); string(chain) != "chain "+version {
			c.t.Fatalf("got %q, want version %s", chain, version)
		}
	}
}

// raw sends bytes as they are in the place of messages.
type raw struct{}

func (raw) Name() string                             { return "proto" }
func (raw) Unmarshal(_ mem.BufferSlice, _ any) error { return nil }
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// sendRaw sends a first message on a new stream and returns how the stream ended.
func sendRaw(t *testing.T, socket, method string, message []byte) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := dial(t, socket).NewStream(ctx, desc, "/envoy.service.secret.v3.SecretDiscoveryService/"+method, grpc.ForceCodecV2(raw{}))
	must(t, err)
	_ = stream.SendMsg(message) // why it failed is what RecvMsg returns
	return stream.RecvMsg(nil)
}

// encoded returns the message of either dialect.
func encoded(t *testing.T, message proto.Message) []byte {
	t.Helper()
	out, err := proto.Marshal(message)
	must(t, err)
	return out
}

func TestBadRequestEndsOnlyItsStream(t *testing.T) {
	node, other := &corev3.Node{Id: strings.Repeat("x", 1<<20)}, "type.googleapis.com/other"
	tooMany := make([]string, 10_001)
	for name, c := range map[string]struct {
		sotw, delta []byte
		want        codes.Code
	}{
		"no protobuf": {[]byte("\xff\xff\xff\xff"), []byte("\xff\xff\xff\xff"), codes.Internal},
		"cut":         {[]byte("\x1a\x7fdefault"), []byte("\x1a\x7fdefault"), codes.Internal},
		"no UTF-8":    {[]byte("\x1a\x02\xc3\x28"), []byte("\x1a\x02\xc3\x28"), codes.Internal},
		"over 4 MiB":  {make([]byte, 4<<20+1), make([]byte, 4<<20+1), codes.ResourceExhausted},
		"another type": {
			encoded(t, &discoveryv3.DiscoveryRequest{TypeUrl: other}),
			encoded(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: other}), codes.InvalidArgument,
		},
		"a megabyte's node id": {
			encoded(t, &discoveryv3.DiscoveryRequest{Node: node}),
			encoded(t, &discoveryv3.DeltaDiscoveryRequest{Node: node}), codes.InvalidArgument,
		},
		"over 10,000 names": {
			encoded(t, &discoveryv3.DiscoveryRequest{ResourceNames: tooMany}),
			encoded(t, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: tooMany}), codes.ResourceExhausted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWitness(t, sds.Config{})
			for method, message := range map[string][]byte{"StreamSecrets": c.sotw, "DeltaSecrets": c.delta} {
				if err := sendRaw(t, w.socket, method, message); status.Code(err) != c.want {
					t.Errorf("%s ended with %.300v, want %v", method, err, c.want)
				}
			}
			w.served()
		})
	}
}

func TestTenThousandNamesOnOneStreamAreServed(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	w := startWitness(t, sds.Config{})
	var names []string
	for i := range 10_000 {
		item := bundle("1")
		item.Name = fmt.Sprintf("file-root:/etc/roots/%d.pem", i)
		names = append(names, item.Name)
		w.source.Put(item)
	}
	got := map[string]bool{}
	for c := openDelta(t, dial(t, w.socket), nil, names...); len(got) < len(names); {
		secrets, removed := c.get()
		if len(removed) > 0 {
			t.Fatalf("%d names are removed", len(removed))
		}
		for name := range secrets {
			got[name] = true
		}
	}
	w.served()
}

func TestMetadataIsBounded(t *testing.T) {
	w := startWitness(t, sds.Config{})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 1<<20))
	_, err := secretv3.NewSecretDiscoveryServiceClient(dial(t, w.socket)).FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{})
	if err == nil || !strings.Contains(err.Error(), "header list size") {
		t.Errorf("a megabyte of metadata: %v", err)
	}
	w.served()
}

// Its window is full after the first answer. What changes meanwhile is not kept for
// it: it gets the last version soon.
func TestUnreadStreamKeepsNothingAndBlocksNoOther(t *testing.T) {
	w := startWitness(t, sds.Config{})
	conn := dial(t, w.socket)
	slow := open(t, conn)
	slow.ask("default", "ROOTCA")
	const last = 500
	for i := range last + 1 {
		w.source.Put(largeBundle(i))
	}
	beside := open(t, conn) // on the same connection
	beside.ask("default")
	beside.get()
	w.served()
	for answers := 1; ; answers++ {
		roots := slow.get()["ROOTCA"].GetValidationContext().GetTrustedCa().GetInlineBytes()
		if strings.HasPrefix(string(roots), fmt.Sprint(last, " ")) {
			break
		}
		if answers > 5 {
			t.Fatalf("after %d answers to come is still not the last version", answers)
		}
	}
}

// A client whose process stands still does not read its socket at all. The server
// can be closed all the same: it is, before the client.
func TestUnreadConnectionDoesNotBlockClose(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	var w *witness
	frozen := &freezable{frozen: make(chan struct{}), closed: make(chan struct{})}
	conn, err := grpc.NewClient("passthrough:///frozen", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (_ net.Conn, err error) {
			frozen.Conn, err = net.Dial("unix", w.socket)
			return frozen, err
		}))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	w = startWitness(t, sds.Config{})
	c := open(t, conn)
	c.ask("default", "ROOTCA")
	c.get()
	close(frozen.frozen)
	for i := range 100 {
		w.source.Put(largeBundle(i))
	}
	w.served()
}

// freezable is a connection that reads nothing any more once it is frozen.
type freezable struct {
	net.Conn
	frozen, closed chan struct{}
	once           sync.Once
}

func (f *freezable) Read(b []byte) (int, error) {
	select {
	case <-f.frozen:
		<-f.closed
		return 0, net.ErrClosed
	default:
		return f.Conn.Read(b)
	}
}

func (f *freezable) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}

// largeBundle is more than the window of a stream has, 64 KiB.
func largeBundle(version int) *secret.Item {
	roots := fmt.Appendf(nil, "%d %s", version, strings.Repeat("x", 100<<10))
	return &secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: fmt.Sprint(version), Roots: roots}
}

func TestNonHTTP2ConnectionIsClosed(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	random := make([]byte, 1<<16)
	for i := range random {
		random[i] = byte(i * 7)
	}
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for name, sent := range map[string]string{
		"nothing":             "",
		"half a preface":      preface[:10],
		"a preface alone":     preface,
		"HTTP/1.1":            "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"TLS":                 "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + string(random[:517]),
		"random":              string(random),
		"a preface, random":   preface + string(random),
		"a frame of 16 MiB":   preface + "\xff\xff\xff\x04\x00\x00\x00\x00\x00",
		"a stream of its own": preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x04\x00\x00\x00\x02\x82",
	} {
		t.Run(name, func(t *testing.T) {
			w := startWitness(t, sds.Config{Handshake: 200 * time.Millisecond})
			conn, err := net.Dial("unix", w.socket)
			must(t, err)
			defer conn.Close()
			_, _ = io.WriteString(conn, sent) // may be cut short
			must(t, conn.SetReadDeadline(time.Now().Add(patience)))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection is open after %s", patience)
			}
			w.served()
		})
	}
}
