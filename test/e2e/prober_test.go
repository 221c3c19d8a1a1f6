package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// prober makes mutual TLS handshakes, each on a new connection with a request on
// it, one after the other until the test ends.
type prober struct {
	// probe makes one, and returns what the server showed.
	probe func(context.Context) (*x509.Certificate, error)

	mu         sync.Mutex
	changed    notice
	handshakes []handshake // each that said something new, see say
	count      int
	failures   []handshake
}

// handshake is how one went.
type handshake struct {
	at     time.Time         // when it was over
	server *x509.Certificate // nil where it failed
	client *x509.Certificate // what we would have shown
	err    error
}

// A handshake costs both ends some 5 ms of a core, and a dozen tests probe at once.
const probeInterval = 40 * time.Millisecond

// startProber asks a server for a page, on each connection. It returns after the first
// handshake, which must go well.
func startProber(t *testing.T, w *workload, target, server string) *prober {
	t.Helper()
	dialer := tls.Dialer{Config: w.tlsConfig(server)}
	return startProberBy(t, w, func(ctx context.Context) (*x509.Certificate, error) {
		return askForPage(ctx, &dialer, target)
	})
}

func startProberBy(t *testing.T, w *workload, probe func(context.Context) (*x509.Certificate, error)) *prober {
	t.Helper()
	p := &prober{probe: probe, changed: newNotice()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx, w)
	}()
	t.Cleanup(func() { cancel(); <-done })
	p.await(t, "a first handshake", func() bool { return p.count+len(p.failures) > 0 })
	p.noFailures(t)
	return p
}

func (p *prober) run(ctx context.Context, w *workload) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		h := handshake{client: w.certificate().Leaf}
		h.server, h.err = p.once(ctx)
		h.at = time.Now()
		if ctx.Err() == nil {
			p.say(h)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (p *prober) once(ctx context.Context) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	return p.probe(ctx)
}

// askForPage shakes hands and asks for a page: in TLS 1.3 the server's no to the
// client's certificate comes after the client's handshake is over.
func askForPage(ctx context.Context, dialer *tls.Dialer, target string) (*x509.Certificate, error) {
	conn, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := getOnce(conn); err != nil {
		return nil, err
	}
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func getOnce(conn net.Conn) error {
	req, err := http.NewRequest(http.MethodGet, "http://envoy/", http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	return nil
}

// say keeps a handshake where it failed or where a certificate is another than
// before, and counts it else.
func (p *prober) say(h handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed.tell()
	if h.err != nil {
		p.failures = append(p.failures, h)
		return
	}
	p.count++
	if n := len(p.handshakes); n == 0 || !p.handshakes[n-1].server.Equal(h.server) || !p.handshakes[n-1].client.Equal(h.client) {
		p.handshakes = append(p.handshakes, h)
	}
}

// await waits until done, which may look at the prober's fields.
func (p *prober) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	await(t, &p.mu, &p.changed, what, done)
}

// server returns the certificate that was shown last.
func (p *prober) server() *x509.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last()
}

func (p *prober) last() *x509.Certificate { return p.handshakes[len(p.handshakes)-1].server }

// awaitRotation waits until the server shows a certificate that is new since now, and
// returns it.
func (p *prober) awaitRotation(t *testing.T) *x509.Certificate {
	t.Helper()
	old := p.server()
	p.await(t, "the server to show another certificate", func() bool { return !p.last().Equal(old) })
	return p.server()
}

// awaitHandshakes waits for n more that go well.
func (p *prober) awaitHandshakes(t *testing.T, n int) {
	t.Helper()
	p.mu.Lock()
	until := p.count + n
	p.mu.Unlock()
	p.await(t, fmt.Sprintf("%d more handshakes", n), func() bool { return p.count >= until })
}

// noFailures is what every test ends with: not one failed handshake.
func (p *prober) noFailures(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range p.failures {
		if i == 5 {
			break
		}
		t.Errorf("failed handshake at %s: %v (our certificate is valid until %s)",
			h.at.Format(time.TimeOnly+".000"), h.err, h.client.NotAfter.Format(time.TimeOnly))
	}
	if len(p.failures) > 0 {
		t.Fatalf("%d handshakes failed, %d went well", len(p.failures), p.count)
	}
}
