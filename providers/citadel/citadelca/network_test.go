package citadelca

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// silent accepts connections and passes them to f.
func silent(t *testing.T, f func(net.Conn)) (address string, accepted func() int) {
	t.Helper()
	listener := listen(t, "127.0.0.1:0")
	var mu sync.Mutex
	var conns []net.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		accept(listener, func(conn net.Conn) {
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			f(conn)
		})
	}()
	t.Cleanup(func() {
		listener.Close()
		<-ended
		for _, conn := range conns {
			conn.Close()
		}
	})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return "localhost:" + port, func() int { mu.Lock(); defer mu.Unlock(); return len(conns) }
}

func TestSilentServerTakesRequestDeadline(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	address, _ := silent(t, func(net.Conn) {})
	c := mustOpen(t, Settings{Address: address, RootFile: fileOf(t, systemCA.Bundle().PEM())})
	req, _ := ask(t, theToken)
	begin := time.Now()
	_, err := c.CSRSign(testkit.Within(t, 300*time.Millisecond), req)
	mustBe(t, err, ca.ErrDeadline, address)
	if took := time.Since(begin); took >= patience {
		t.Errorf("it took %s", took)
	}
}

func TestServerThatHangsUpIsAskedOnce(t *testing.T) {
	t.Parallel()
	address, accepted := silent(t, func(conn net.Conn) { conn.Close() })
	c := mustOpen(t, Settings{Address: address, RootFile: fileOf(t, systemCA.Bundle().PEM())})
	mustFail(t, c, ca.ErrUnavailable, address)
	if n := accepted(); n != 1 {
		t.Errorf("there were %d connections", n)
	}
}

func TestNonTLSBytesAreAnError(t *testing.T) {
	t.Parallel()
	address, _ := silent(t, func(conn net.Conn) {
		_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat("x", 1000)))
		conn.Close()
	})
	c := mustOpen(t, Settings{Address: address, RootFile: fileOf(t, systemCA.Bundle().PEM())})
	req, _ := ask(t, theToken)
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrUnavailable, address, "tls: ")
}

func TestAbsentServerIsUnavailable(t *testing.T) {
	t.Parallel()
	listener := listen(t, "127.0.0.1:0")
	address := listener.Addr().String()
	listener.Close()
	c := mustOpen(t, Settings{Address: address, RootFile: fileOf(t, systemCA.Bundle().PEM())})
	req, _ := ask(t, theToken)
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrUnavailable, address, "connection refused")
}

// startPlaintext serves without TLS on istiod's port for that, on a loopback
// address of its own.
func startPlaintext(t *testing.T) *istiod {
	t.Helper()
	i := start(t)
	i.tls = nil
	i.serve(t, listen(t, fmt.Sprintf("127.%d.%d.%d:15010", 1+rand.N(250), rand.N(250), 1+rand.N(250))))
	return i
}

func TestNoTokenGoesOverPlaintext(t *testing.T) {
	t.Parallel()
	listener := listen(t, fmt.Sprintf("127.%d.%d.%d:15010", 1+rand.N(250), rand.N(250), 1+rand.N(250)))
	asked := make(chan struct{}, 100)
	go accept(listener, func(conn net.Conn) { asked <- struct{}{}; conn.Close() })
	c := mustOpen(t, Settings{Address: listener.Addr().String()})
	mustFail(t, c, ca.ErrInvalid, "the token would be sent in plaintext", listener.Addr().String(), "allow_token_over_plaintext")
	if len(asked) > 0 {
		t.Error("a connection was made")
	}
}

// A header may be a credential as well as a token.
func TestNoHeaderGoesOverPlaintext(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"x-api-key": "a secret"}
	_, err := Open(Settings{Address: "127.0.0.1:15010", Headers: headers})
	mustBe(t, err, ca.ErrInvalid, "headers may hold credentials", "127.0.0.1:15010", "allow_token_over_plaintext")
	server := startPlaintext(t)
	mustSign(t, mustOpen(t, Settings{Address: server.address, Headers: headers, AllowTokenOverPlaintext: true}))
	if got := server.last(t).metadata.Get("x-api-key"); len(got) != 1 {
		t.Errorf("sent %q", got)
	}
}

func TestPlaintextWorksWithoutTokenOrWhereAllowed(t *testing.T) {
	t.Parallel()
	server := startPlaintext(t)
	log := &testkit.Log{}
	c := mustOpen(t, Settings{Address: server.address, Log: log.Logger()})
	if text := log.Take(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "plaintext") || !strings.Contains(text, server.address) {
		t.Errorf("logged %q", text)
	}
	req, check := ask(t, "")
	reply, err := c.CSRSign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Passes(t, reply, check)
	if call := server.last(t); call.metadata["authorization"] != nil {
		t.Error("a token was sent")
	}
	mustSign(t, mustOpen(t, Settings{Address: server.address, AllowTokenOverPlaintext: true}))
	if call := server.last(t); call.metadata["authorization"] == nil {
		t.Error("the token was not sent though that is allowed")
	}
}

func TestPlaintextIsNotSpokenOnOtherPort(t *testing.T) {
	t.Parallel()
	server := start(t)
	server.serve(t, listen(t, "127.0.0.1:0")) // without TLS
	settings := Settings{Address: server.address, RootFile: fileOf(t, systemCA.Bundle().PEM()), AllowTokenOverPlaintext: true}
	req, _ := ask(t, theToken)
	_, err := mustOpen(t, settings).CSRSign(t.Context(), req)
	mustBe(t, err, ca.ErrUnavailable, "tls: ")
	if calls := server.calls(); len(calls) > 0 {
		t.Error("it was asked")
	}
}
