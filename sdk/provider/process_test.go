//go:build unix

package provider_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// child is this test's binary as a provider, started by hand.
type child struct {
	*wire.Remote
	lifeline *os.File
	process  *os.Process
	log      *bufio.Scanner
	line     string     // of the handshake
	ended    chan error // of Wait
}

// byHand starts the provider as a host would: with a lifeline and a channel, or
// as a bare go-plugin host that opens no stream for what is printed.
func byHand(t *testing.T, channel bool, change ...func(*exec.Cmd)) *child {
	t.Helper()
	proctest.NeedsProcess(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), speaks+"=1", promptExit, wire.MagicCookieKey+"="+wire.MagicCookieValue,
		wire.EnvVersions+"=1", wire.EnvSocketDir+"="+t.TempDir())
	c := &child{ended: make(chan error, 1)}
	var conn net.Conn
	if channel {
		var theirs [2]*os.File
		var ours *os.File
		c.lifeline, theirs[0] = socketPair(t)
		ours, theirs[1] = socketPair(t)
		cmd.ExtraFiles = theirs[:]
		cmd.Env = append(cmd.Env, wire.EnvLifelineFD+"=3", wire.EnvChannelFD+"=4")
		defer theirs[0].Close()
		defer theirs[1].Close()
		defer ours.Close()
		var err error
		if conn, err = net.FileConn(ours); err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range change {
		change(cmd)
	}
	stdout, stdoutErr := cmd.StdoutPipe()
	// Not StderrPipe: Wait would close that one with the last records unread.
	stderr, writeEnd, stderrErr := os.Pipe()
	cmd.Stderr = writeEnd
	must(t, errors.Join(stdoutErr, stderrErr, cmd.Start(), writeEnd.Close()))
	c.process, c.log = cmd.Process, bufio.NewScanner(stderr)
	c.log.Buffer(nil, 4<<20)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-c.ended
		_ = stderr.Close()
	})
	if channel {
		if _, err := (wire.StartData{}).WriteTo(c.lifeline); err != nil {
			t.Fatal(err)
		}
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	c.line = strings.TrimSpace(line)
	go func() { c.ended <- cmd.Wait(); close(c.ended) }()
	must(t, err)
	c.Remote = wire.NewRemote(dial(t, conn, c.line), wire.RemoteOptions{})
	return c
}

func socketPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { _ = ours.Close() })
	return ours, theirs
}

// dial connects over conn, or to the address in the handshake line.
func dial(t *testing.T, conn net.Conn, line string) *grpc.ClientConn {
	t.Helper()
	dialer := func(ctx context.Context, _ string) (net.Conn, error) {
		if conn != nil {
			return conn, nil
		}
		return new(net.Dialer).DialContext(ctx, "unix", strings.Split(line, "|")[3])
	}
	cc, err := grpc.NewClient("passthrough:///provider", grpc.WithContextDialer(dialer), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// logged waits for a record in the provider's log.
func (c *child) logged(t *testing.T, message string) map[string]any {
	t.Helper()
	for c.log.Scan() {
		var record map[string]any
		if json.Unmarshal(c.log.Bytes(), &record) == nil && record["@message"] == message {
			return record
		}
	}
	t.Fatalf("the log ended without %q: %v", message, c.log.Err())
	return nil
}

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// exit waits for the end of the process.
func (c *child) exit(t *testing.T) error {
	t.Helper()
	go func() { _, _ = io.Copy(io.Discard, onlyReader{c.log}) }()
	select {
	case err := <-c.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("the process is still there after %s", patience)
		return nil
	}
}

// onlyReader reads on what a scanner has left.
type onlyReader struct{ *bufio.Scanner }

func (r onlyReader) Read([]byte) (int, error) {
	if r.Scan() {
		return 0, nil
	}
	return 0, io.EOF
}

func TestInheritedChannelIsServedAndHiddenFromGrandchildren(t *testing.T) {
	c, ctx := byHand(t, true), t.Context()
	if want := "1|1|unix|fd:4|grpc"; c.line != want {
		t.Errorf("handshake %q, want %q", c.line, want)
	}
	must(t, c.Configure(ctx, nil))
	if _, err := c.CSRSign(ctx, request(t)); err != nil {
		t.Error(err)
	}
	token, err := c.ExchangeToken(ctx, ca.TokenRequest{SubjectToken: "me", Audience: "descriptors"})
	if err != nil || token.AccessToken.Reveal() != "0" {
		t.Errorf("a program that the author starts has %q sockets, %v", token.AccessToken.Reveal(), err)
	}
}

func TestProviderEndsAtOnceWithHost(t *testing.T) {
	c := byHand(t, true)
	must(t, c.Configure(t.Context(), map[string]any{"await": "ctx"}))
	called := make(chan error, 1)
	go func() { _, err := c.CSRSign(t.Context(), request(t)); called <- err }()
	c.logged(t, "waiting") // not even a call in flight holds it
	must(t, c.lifeline.Close())
	if err := c.exit(t); err != nil {
		t.Errorf("exit: %v", err)
	}
	if err := <-called; !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("the call: %v", err)
	}
}

func TestSIGTERMEndsCallsAndClosesAuthority(t *testing.T) {
	for name, channel := range map[string]bool{"channel": true, "stock": false} {
		t.Run(name, func(t *testing.T) {
			c := byHand(t, channel)
			must(t, c.Configure(t.Context(), map[string]any{"await": "term"}))
			called, watched := make(chan error, 1), make(chan error, 1)
			first := make(chan struct{})
			go func() {
				watched <- c.WatchRoots(t.Context(), func([]byte) error { close(first); return nil })
			}()
			<-first
			go func() { _, err := c.CSRSign(t.Context(), request(t)); called <- err }()
			c.logged(t, "waiting")
			must(t, c.process.Signal(syscall.SIGTERM))
			if err := <-called; err != nil {
				t.Errorf("the call in flight: %v", err)
			}
			if err := <-watched; !errors.Is(err, ca.ErrUnavailable) {
				t.Errorf("the watch: %v", err)
			}
			c.logged(t, "closed")
			if err := c.exit(t); err != nil {
				t.Errorf("exit: %v", err)
			}
		})
	}
}

func TestPrintedTextIsLoggedEvenWithoutStream(t *testing.T) {
	for name, channel := range map[string]bool{"channel": true, "stock": false} {
		t.Run(name, func(t *testing.T) {
			c := byHand(t, channel)
			configured := make(chan error, 1)
			go func() { configured <- c.Configure(t.Context(), map[string]any{"print": 1 << 20}) }()
			printed := 0
			for printed < 2<<20 && c.log.Scan() {
				printed += strings.Count(c.log.Text(), "x")
			}
			if err := <-configured; err != nil || printed < 2<<20 {
				t.Errorf("%d bytes arrived, %v", printed, err)
			}
		})
	}
}

func TestRecordsAreReadableByHclog(t *testing.T) {
	c := byHand(t, true)
	must(t, c.Configure(t.Context(), map[string]any{"greeting": "hello"}))
	record := c.logged(t, "opened")
	if record["@level"] != "warn" || record["greeting"] != "hello" {
		t.Errorf("got %v", record)
	}
	// A stock host reads this layout and no other, or takes the line for plain text.
	if _, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", record["@timestamp"].(string)); err != nil {
		t.Error(err)
	}
}

func TestPanicLogsStackWithoutToken(t *testing.T) {
	c := byHand(t, true)
	must(t, c.Configure(t.Context(), map[string]any{"panic": true}))
	if _, err := c.CSRSign(t.Context(), request(t)); !errors.Is(err, ca.ErrInternal) {
		t.Errorf("got %v", err)
	}
	record := c.logged(t, "call panicked")
	if record["panic"] != "on purpose, with (secret)" || !strings.Contains(record["stack"].(string), "CSRSign") {
		t.Errorf("got %v", record)
	}
}

// fillsIn checks itself by pointer, as an author who fills in defaults does.
type fillsIn struct {
	Port int `json:"port,omitempty"`
}

func (f *fillsIn) Validate() error {
	if f.Port < 0 {
		return errors.New("port is negative")
	}
	if f.Port == 0 {
		f.Port = 443
	}
	return nil
}

func TestPointerValidateMethodIsCalled(t *testing.T) {
	var got int
	definition := provider.Define("test", "1", func(_ context.Context, s fillsIn) (ca.Client, error) {
		got = s.Port
		return nil, nil
	})
	if _, err := definition.Open(t.Context(), nil); err != nil || got != 443 {
		t.Errorf("port %d, %v", got, err)
	}
	if _, err := definition.Open(t.Context(), map[string]any{"port": -1}); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
