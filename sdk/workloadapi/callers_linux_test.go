package workloadapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

const domain = "spiffe://example.org/"

// many is a server whose callers have identities of their own.
type many struct {
	*client
	ca     *catest.CA
	set    *identities.Set
	server *workloadapi.Server
	socket string
	log    logtest.Log

	mu       sync.Mutex
	of       func(workloadapi.Process) (string, bool, error)
	outcomes map[workloadapi.Outcome]int
}

// startMany identifies each process as of does.
func startMany(t *testing.T, of func(workloadapi.Process) (string, bool, error), limits identities.Limits) *many {
	t.Helper()
	m := &many{ca: catest.NewCA(catest.Options{}), of: of, outcomes: map[workloadapi.Outcome]int{}}
	manager, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: m.ca, RootOverlap: new(time.Duration)}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}}, Log: m.log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Close() })
	m.set, err = identities.New(identities.Config{
		Manager: manager, Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour}, Limits: limits,
		Identify: identities.Identify{Peer: func(secret.Caller) (string, bool) { return "", false }}, Log: m.log.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.set.Close() })
	m.server, m.client = start(t, m.set, workloadapi.Config{Callers: &workloadapi.Callers{Identify: m.identify, Sessions: m.set, Observe: m.observe}, Log: m.log.Logger()})
	m.socket = strings.TrimPrefix(m.conn.Target(), "unix:")
	return m
}

func (m *many) identify(p workloadapi.Process) (string, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(p)
}

func (m *many) become(of func(workloadapi.Process) (string, bool, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of = of
}

func (m *many) observe(outcome workloadapi.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[outcome]++
}

func (m *many) count(outcome workloadapi.Outcome) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outcomes[outcome]
}

func as(name string) func(workloadapi.Process) (string, bool, error) {
	return func(workloadapi.Process) (string, bool, error) { return domain + name, true, nil }
}

// svid returns the next reply's only SVID.
func svid(t *testing.T, s *stream[workloadv1.X509SVIDResponse]) string {
	t.Helper()
	got := s.get()
	if len(got.GetSvids()) != 1 {
		t.Fatalf("%d SVIDs", len(got.GetSvids()))
	}
	return got.GetSvids()[0].GetSpiffeId()
}

func TestCallerHasIdentityOfItsProcess(t *testing.T) {
	m := startMany(t, func(p workloadapi.Process) (string, bool, error) {
		uid, gid, err := p.User()
		return domain + "web", err == nil && int(p.PID()) == os.Getpid() && int(uid) == os.Geteuid() && int(gid) == os.Getegid(), err
	}, identities.Limits{})
	stream := m.svids()
	if id := svid(t, stream); id != domain+"web" {
		t.Errorf("got %s", id)
	}
	if got := m.bundles().get(); !bytes.Equal(got.GetBundles()["spiffe://example.org"], m.ca.Bundle().Certificates()[0].Raw) {
		t.Errorf("bundles: %v", got)
	}
	m.ca.Rotate()
	if id := svid(t, stream); id != domain+"web" {
		t.Errorf("after a rotation: %s", id)
	}
	if n := m.count(workloadapi.Granted); n != 2 || m.server.Streams() != 2 {
		t.Errorf("%d granted, %d streams", n, m.server.Streams())
	}
}

func TestProcessWithoutIdentityIsDenied(t *testing.T) {
	m := startMany(t, func(workloadapi.Process) (string, bool, error) { return "", false, nil }, identities.Limits{})
	for method, request := range calls {
		if err := open[workloadv1.X509SVIDResponse](m.client, method, request).end(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "no identity issued") {
			t.Errorf("%s: %v", method, err)
		}
	}
	m.become(func(workloadapi.Process) (string, bool, error) { return "", false, errors.New("/proc is away") })
	for method, request := range calls {
		if err := open[workloadv1.X509SVIDResponse](m.client, method, request).end(); status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "/proc") {
			t.Errorf("%s of a process that cannot be identified: %v", method, err)
		}
	}
	if n, o := m.count(workloadapi.NoIdentity), m.count(workloadapi.Unavailable); n != len(calls) || o != len(calls) {
		t.Errorf("%d and %d outcomes", n, o)
	}
	if text := m.log.String(); strings.Count(text, "no identity for a caller of the Workload API") != 2 || !strings.Contains(text, "/proc is away") {
		t.Error(text)
	}
	m.header = nil
	if err := m.svids().end(); status.Code(err) != codes.InvalidArgument || m.count(workloadapi.NoIdentity) != len(calls) {
		t.Errorf("without the header: %v", err)
	}
}

func TestStreamEndsOnceItsProcessHasAnotherIdentity(t *testing.T) {
	m := startMany(t, as("web"), identities.Limits{})
	stream := m.svids()
	svid(t, stream)
	m.become(as("db"))
	m.ca.Rotate()
	if err := stream.end(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "another identity") {
		t.Errorf("the stream ends with %v", err)
	}
	if id := svid(t, m.svids()); id != domain+"db" {
		t.Errorf("the next one has %s", id)
	}
}

func TestStreamsOfOneIdentityAreLimited(t *testing.T) {
	m := startMany(t, as("web"), identities.Limits{Streams: 1})
	svid(t, m.svids())
	if err := m.svids().end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "streams of one identity") {
		t.Errorf("the second stream: %v", err)
	}
	m.become(as("db"))
	svid(t, m.svids())
}

// While many processes of a user are being identified, its further ones wait.
func TestFewProcessesOfUserAreIdentifiedAtOnce(t *testing.T) {
	blocked, arrived := make(chan struct{}), make(chan struct{}, 100)
	m := startMany(t, nil, identities.Limits{})
	m.of = func(workloadapi.Process) (string, bool, error) {
		m.mu.Unlock()
		defer m.mu.Lock()
		arrived <- struct{}{}
		<-blocked
		return domain + "web", true, nil
	}
	var streams []*stream[workloadv1.X509SVIDResponse]
	for range 20 {
		streams = append(streams, m.svids())
	}
	user := fmt.Sprintf("uid:%d", os.Geteuid())
	for deadline := time.Now().Add(patience); m.server.Calling(user) < len(streams); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d calls have come", m.server.Calling(user), len(streams))
		}
	}
	for range 16 {
		<-arrived
	}
	if len(arrived) != 0 {
		t.Error("more than 16 are identified at once")
	}
	close(blocked)
	for _, stream := range streams {
		svid(t, stream)
	}
}

const connector = "COUNTERSIGN_TEST_CONNECT"

func init() {
	if path := os.Getenv(connector); path != "" {
		connect(path)
		os.Exit(0)
	}
}

// connect opens a connection, leaves it to the test, and waits. At a line of input, it becomes another user.
func connect(path string) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		panic(err)
	}
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		panic(err)
	}
	if err := syscall.Sendmsg(3, []byte{1}, syscall.UnixRights(int(file.Fd())), nil, 0); err != nil {
		panic(err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := errors.Join(syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write([]byte{1})
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// child is a process that has opened a connection which the test has.
type child struct {
	*proctest.Process
	*client
	in, out *os.File
}

func (m *many) child(t *testing.T) *child {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	in, toChild, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromChild, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.ExtraFiles, cmd.Stdin, cmd.Stdout = append(os.Environ(), connector+"="+m.socket), []*os.File{theirs}, in, out
	c := &child{Process: proctest.Start(t, cmd), in: toChild, out: fromChild}
	t.Cleanup(func() { _ = errors.Join(in.Close(), out.Close(), toChild.Close(), fromChild.Close()) })
	c.client = dialOver(t, receive(t, pair[0]))
	return c
}

// receive returns the connection that a child has sent.
func receive(t *testing.T, from int) net.Conn {
	t.Helper()
	rights := make([]byte, 64)
	_, n, _, _, err := syscall.Recvmsg(from, make([]byte, 1), rights, 0)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), filepath.Base("connection"))
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func dialOver(t *testing.T, conn net.Conn) *client {
	t.Helper()
	one := make(chan net.Conn, 1)
	one <- conn
	over, err := grpc.NewClient("passthrough:child", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			select {
			case conn := <-one:
				return conn, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { over.Close() })
	return &client{t, over, []string{"workload.spiffe.io", "true"}}
}

// The process that opened a connection counts, whoever uses it, and until that process ends.
func TestStreamEndsWithTheProcessThatOpenedItsConnection(t *testing.T) {
	m := startMany(t, nil, identities.Limits{})
	c := m.child(t)
	m.become(func(p workloadapi.Process) (string, bool, error) {
		_, _, err := p.User()
		return domain + "child", int(p.PID()) == c.PID(), err
	})
	stream := c.svids()
	if id := svid(t, stream); id != domain+"child" {
		t.Errorf("got %s", id)
	}
	c.Kill()
	if err := stream.end(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("the stream ends with %v", err)
	}
	if err := c.svids().end(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("the next call: %v", err)
	}
	if m.count(workloadapi.Ended) != 1 || m.server.Streams() != 0 {
		t.Errorf("%d ended, %d streams", m.count(workloadapi.Ended), m.server.Streams())
	}
}

// A process may open a connection, leave it to another one, and run a program of another user.
func TestConnectionOfUserIsNotAnotherUsersLater(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("becoming another user needs root")
		return
	}
	m := startMany(t, nil, identities.Limits{})
	c := m.child(t)
	m.become(func(p workloadapi.Process) (string, bool, error) {
		_, _, err := p.User()
		return domain + "child", true, err
	})
	svid(t, c.svids())
	if _, err := c.in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := c.svids().end(); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "another identity") {
		t.Errorf("it ends with %v", err)
	}
}
