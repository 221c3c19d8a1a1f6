//go:build unix

package acmeca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

var quiet = slog.New(slog.DiscardHandler)

var proof = challenge{name{dnsName, www}, "token-token-token-token", "token-token-token-token.print"}

// answersAt returns a port's answer for a token, or the error.
func answersAt(t *testing.T, address, path string) (string, error) {
	t.Helper()
	resp, err := http.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return "", errors.Join(err, errors.New(resp.Status))
	}
	return string(said), err
}

func TestPortAnswersWhatIsProvedNowAndNothingElse(t *testing.T) {
	h := newHTTP(testkit.FreeAddress(t), quiet)
	first, err := h.present(t.Context(), proof)
	must(t, err)
	second, err := h.present(t.Context(), proof)
	must(t, err)
	at := "/" + wellKnown + "/"
	if said, err := answersAt(t, h.address, at+proof.token); said != proof.proof {
		t.Errorf("got %q, %v", said, err)
	}
	for _, path := range []string{"/", at, at + "another", "/" + proof.token, at + proof.token + "/"} {
		if said, err := answersAt(t, h.address, path); err == nil {
			t.Errorf("%s: %q", path, said)
		}
	}
	must(t, first(t.Context()))
	if _, err := net.Dial("tcp", h.address); err != nil {
		t.Errorf("the other order's port: %v", err)
	}
	must(t, second(t.Context()))
	if _, err := net.Dial("tcp", h.address); err == nil {
		t.Error("the port is still open")
	}
}

func TestPortThatIsTakenIsWaitedFor(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	h := newHTTP(taken.Addr().String(), quiet)
	gone, goes := context.WithCancel(t.Context())
	goes()
	if _, err := h.present(gone, proof); err == nil {
		t.Error("it listens at a port that is taken")
	}
	done := make(chan error)
	go func() {
		clean, err := h.present(t.Context(), proof)
		if err == nil {
			err = clean(t.Context())
		}
		done <- err
	}()
	must(t, taken.Close())
	must(t, <-done)
}

func TestStrangersConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	few := &limited{Listener: l, room: make(chan struct{}, 1)}
	go func() {
		for {
			if _, err := few.Accept(); err != nil {
				return
			}
		}
	}()
	first, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer first.Close()
	second, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer second.Close()
	must(t, second.SetReadDeadline(time.Now().Add(2*time.Minute)))
	if _, err := second.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection beyond the bound was kept")
	}
}

func TestALPNAnswersItsProtocolAlone(t *testing.T) {
	a := newALPN(testkit.FreeAddress(t), quiet)
	clean, err := a.present(t.Context(), proof)
	must(t, err)
	idle, err := net.Dial("tcp", a.address) // an unknown client that sends nothing
	must(t, err)
	defer idle.Close()
	config := &tls.Config{InsecureSkipVerify: true, ServerName: www, NextProtos: []string{protocol}}
	conn, err := tls.Dial("tcp", a.address, config)
	must(t, err)
	leaf := conn.ConnectionState().PeerCertificates[0]
	conn.Close()
	if leaf.DNSNames[0] != www || !hasProof(leaf) {
		t.Errorf("it has %v and the extensions %v", leaf.DNSNames, leaf.Extensions)
	}
	for name, other := range map[string]*tls.Config{
		"another name": {InsecureSkipVerify: true, ServerName: "other.example.org", NextProtos: []string{protocol}},
		"no protocol":  {InsecureSkipVerify: true, ServerName: www},
	} {
		if conn, err := tls.Dial("tcp", a.address, other); err == nil {
			conn.Close()
			t.Errorf("%s was answered", name)
		}
	}
	begun := time.Now()
	must(t, clean(t.Context()))
	if took := time.Since(begun); took > callerTime-time.Second {
		t.Errorf("a silent stranger held the port for %s", took)
	}
}

// short is a listener of a machine that is short of descriptors at first.
type short struct {
	net.Listener
	fails int
}

func (s *short) Accept() (net.Conn, error) {
	if s.fails--; s.fails >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return s.Listener.Accept()
}

func TestShortageOfDescriptorsEndsNoPort(t *testing.T) {
	a := newALPN("", quiet)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.serve(&limited{Listener: &short{l, 3}, room: make(chan struct{}, 1)})
		_ = l.Close() // else callers would wait for ever
	}()
	certificate, err := proof.certificate(time.Now())
	must(t, err)
	a.certs.add(www, certificate)
	conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, ServerName: www, NextProtos: []string{protocol}})
	must(t, err)
	must(t, conn.Close())
	must(t, l.Close())
	<-done
}

func hasProof(leaf *x509.Certificate) bool {
	for _, extension := range leaf.Extensions {
		if extension.Id.Equal(proofExtension) && extension.Critical {
			return true
		}
	}
	return false
}

func TestAddressesHaveReverseNames(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7":   "7.2.0.192.in-addr.arpa",
		"2001:db8::1": "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
	} {
		if got := serverName(name{ipAddress, address}); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func TestWebrootHasReadableAnswerWhileItIsNeeded(t *testing.T) {
	w := webroot(t.TempDir())
	clean, err := w.present(t.Context(), proof)
	must(t, err)
	at := filepath.Join(string(w), wellKnown, proof.token)
	info, err := os.Stat(at)
	if must(t, err); info.Mode().Perm() != publicFile || string(must2(os.ReadFile(at))) != proof.proof {
		t.Errorf("mode %s", info.Mode())
	}
	must(t, clean(t.Context()))
	if left := must2(os.ReadDir(filepath.Dir(at))); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := webroot("/no/such").present(t.Context(), proof); ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("without the folder: %v", err)
	}
}

// dns returns an answerer with a shell line as its command.
func dns(t *testing.T, line string, limit time.Duration) *record01 {
	return newAnswerer(Settings{Challenge: DNS01, DNSCommand: []string{"/bin/sh", "-c", line, "dns"}, DNSTimeout: limit}, quiet).(*record01)
}

func TestDNSCommandGetsTheRecord(t *testing.T) {
	notes := filepath.Join(t.TempDir(), "notes")
	t.Setenv("SESAME", "secret")
	d := dns(t, `echo "$@" "$SESAME" >> `+notes, 0)
	clean, err := d.present(t.Context(), proof)
	must(t, err)
	must(t, clean(t.Context()))
	const record = "_acme-challenge." + www + ". "
	lines := strings.Split(string(must2(os.ReadFile(notes))), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "present "+record) || !strings.HasPrefix(lines[1], "cleanup "+record) || len(lines[0]) != len("present "+record)+43+1 {
		t.Errorf("it was called with %q", lines)
	}
}

func TestFailingHangingOrFloodingDNSCommandEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for line, says := range map[string]string{
		`echo no such zone >&2; exit 3`:              "exit status 3: no such zone",
		`sleep 1000 & echo waiting; wait`:            "killed after 300ms",
		`yes | head -c 10000000; echo x >&2; exit 1`: "exit status 1",
		`printf '\033[31mred'; exit 1`:               `\x1b[31mred`,
	} {
		limit := 2 * time.Minute
		if strings.HasPrefix(line, "sleep") {
			limit = 300 * time.Millisecond
		}
		_, err := dns(t, line, limit).present(t.Context(), proof)
		if ca.ReasonFor(err) != ca.Unavailable || !strings.Contains(err.Error(), says) || len(err.Error()) > 1000 {
			t.Errorf("%s: %.2000v", line, err)
		}
	}
}

// The order's end is not the command's limit.
func TestDNSCommandStoppedWithItsOrderIsNotReportedAsSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	d := dns(t, "sleep 1000", 2*time.Minute)
	ends, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	clean, err := d.present(ends, proof)
	if clean == nil || ca.ReasonFor(err) != ca.Unavailable || strings.Contains(err.Error(), "2m0s") || !strings.Contains(err.Error(), "killed, as its order") {
		t.Errorf("killed: %v", err)
	}
	d.turn <- struct{}{}
	if clean, err := d.present(ends, proof); clean != nil || ca.ReasonFor(err) != ca.Unavailable || !strings.Contains(err.Error(), "other orders") {
		t.Errorf("without a turn: %v", err)
	}
}
