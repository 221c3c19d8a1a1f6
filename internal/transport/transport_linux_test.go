package transport

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// resolving answers each question about a name with these IPv4 addresses, in this order.
func resolving(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			var length [2]byte
			if _, err := io.ReadFull(server, length[:]); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(server, query); err != nil {
				return
			}
			reply := dnsReply(query, addresses)
			_, _ = server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
		}()
		return client, nil
	}}
}

// dnsReply answers a question of type A (RFC 1035, section 4.1).
func dnsReply(query []byte, addresses []string) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5
	reply := append([]byte{}, query[:end]...)
	reply[2], reply[3] = 0x81, 0x80
	copy(reply[8:12], []byte{0, 0, 0, 0})
	if binary.BigEndian.Uint16(query[end-4:]) != 1 {
		return reply // no IPv6 address
	}
	binary.BigEndian.PutUint16(reply[6:], uint16(len(addresses)))
	for _, address := range addresses {
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
		reply = append(reply, net.ParseIP(address).To4()...)
	}
	return reply
}

// fill listens with the shortest backlog and fills it: the kernel then drops the packets of those
// who connect, as those to a host that is down are.
func fill(t *testing.T, address string) {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	to := &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(listener) })
	if err := os.NewSyscallError("bind", unix.Bind(listener, to)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(listener, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(client) })
		if err := unix.Connect(client, to); err != nil && err != unix.EINPROGRESS {
			t.Fatal(err)
		}
	}
}

func TestDeadAddressOfNameIsPassedOver(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fill(t, "127.0.0.2:"+port)
	for name, transport := range map[string]*http.Transport{"outward": Outward(nil), "local": Local(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport.DialContext = dialer{resolving(t, "127.0.0.2", "127.0.0.1").LookupNetIP}.DialContext
			defer transport.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // as a provider's call has
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://ca.invalid:"+port, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatalf("the second address was not tried: %v", err)
			}
			_ = resp.Body.Close()
		})
	}
}

func TestLongHeaderIsRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			w.Header().Add("X-Long", strings.Repeat("x", 1000))
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, http2 := range []bool{false, true} {
		transport := Outward(&tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
		transport.ForceAttemptHTTP2 = http2
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			t.Errorf("HTTP/2 %v: a header of 100 kB was taken", http2)
			_ = resp.Body.Close()
		}
		transport.CloseIdleConnections()
	}
}

func TestLocalConnectsToItsAddressWithoutProxy(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	local := Local(listener.Addr())
	if local.Proxy != nil {
		t.Error("a proxy is asked for a program of this machine")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://192.0.2.1/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := local.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if said, _ := io.ReadAll(resp.Body); string(said) != "192.0.2.1" {
		t.Errorf("the server got %q", said)
	}
}
