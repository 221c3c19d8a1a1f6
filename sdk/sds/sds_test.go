package sds_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// These name the socket that a child of the test asks as another user, or serves
// with few descriptors.
const (
	asChild  = "SDS_TEST_SOCKET"
	asServer = "SDS_TEST_SERVE"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(asChild); socket != "" {
		fmt.Print(askHealth(socket))
		return
	}
	if socket := os.Getenv(asServer); socket != "" {
		fmt.Println(serveWithFewDescriptors(socket))
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = 10 * time.Second

// drawer is a source of fixed items that a test may replace.
type drawer struct {
	mu     sync.Mutex
	items  map[string]*secret.Item // nil: not ready
	notify map[int]func()
	next   int
}

func newDrawer(items ...*secret.Item) *drawer {
	d := &drawer{items: map[string]*secret.Item{}, notify: map[int]func(){}}
	for _, item := range items {
		d.items[item.Name] = item
	}
	return d
}

func (d *drawer) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	item, known := d.items[name]
	switch {
	case !known:
		return nil, secret.ErrUnknown
	case item == nil:
		return nil, secret.ErrNotReady
	}
	return item, nil
}

func (d *drawer) Watch(_ secret.Caller, name string, notify func(string)) (func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := d.next
	d.next++
	d.notify[id] = func() { notify(name) }
	return func() { d.mu.Lock(); delete(d.notify, id); d.mu.Unlock() }, nil
}

func (d *drawer) put(item *secret.Item) {
	d.mu.Lock()
	d.items[item.Name] = item
	var all []func()
	for _, notify := range d.notify {
		all = append(all, notify)
	}
	d.mu.Unlock()
	for _, notify := range all {
		notify()
	}
}

func keyPair(version string) *secret.Item {
	return &secret.Item{Name: "default", Kind: secret.KeyPair, Version: version, Chain: []byte("chain " + version), Key: []byte("key " + version)}
}

func bundle(version string) *secret.Item {
	return &secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: version, Roots: []byte("roots " + version)}
}

// start serves source on a new socket until the test ends.
func start(t *testing.T, source secret.Source, cfg sds.Config) string {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(shortDir(t), "socket")
	}
	server, err := sds.Listen(cfg, source)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := errors.Join(server.Close(ctx), <-served, server.Close(ctx)); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := os.Lstat(cfg.Path); err == nil {
			t.Error("the socket is still there")
		}
	})
	return cfg.Path
}

// shortDir is for sockets, whose paths are short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sds")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client is one stream of a client that acknowledges all it gets.
type client struct {
	secretv3.SecretDiscoveryService_StreamSecretsClient
	t     *testing.T
	names []string
}

func open(t *testing.T, conn *grpc.ClientConn) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &client{SecretDiscoveryService_StreamSecretsClient: stream, t: t}
}

func (c *client) ask(names ...string) {
	c.t.Helper()
	c.names = append(c.names, names...)
	if err := c.Send(&discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: names, Node: &corev3.Node{Id: "test"}}); err != nil {
		c.t.Fatal(err)
	}
}

// get returns the next answer's secrets by name, and acknowledges it.
func (c *client) get() map[string]*tlsv3.Secret {
	c.t.Helper()
	answer, err := c.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	got := map[string]*tlsv3.Secret{}
	for _, resource := range answer.Resources {
		var s tlsv3.Secret
		if err := resource.UnmarshalTo(&s); err != nil {
			c.t.Fatal(err)
		}
		got[s.Name] = &s
	}
	err = c.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: sds.TypeURL, ResourceNames: c.names, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

func TestSecretsComeWithInlineBytesAndAreSentAgainWhenTheyChange(t *testing.T) {
	source := newDrawer(keyPair("1"), bundle("1"))
	c := open(t, dial(t, start(t, source, sds.Config{})))
	c.ask("default", "ROOTCA")
	first := c.get()
	pair, roots := first["default"].GetTlsCertificate(), first["ROOTCA"].GetValidationContext()
	if string(pair.GetCertificateChain().GetInlineBytes()) != "chain 1" || string(pair.GetPrivateKey().GetInlineBytes()) != "key 1" {
		t.Errorf("default is %d bytes of chain, %d of key", len(pair.GetCertificateChain().GetInlineBytes()), len(pair.GetPrivateKey().GetInlineBytes()))
	}
	if string(roots.GetTrustedCa().GetInlineBytes()) != "roots 1" {
		t.Errorf("ROOTCA is %v", roots)
	}
	source.put(keyPair("2"))
	second := c.get()
	if len(second) != 1 || string(second["default"].GetTlsCertificate().GetCertificateChain().GetInlineBytes()) != "chain 2" {
		t.Errorf("after the rotation came %d secrets", len(second))
	}
}

// MOSN sends a request for each name on one stream, none with a nonce, and lists
// all names in its acknowledgements.
func TestMOSNsDialectIsUnderstood(t *testing.T) {
	source := newDrawer(keyPair("1"), bundle("1"))
	c := open(t, dial(t, start(t, source, sds.Config{})))
	c.ask("default")
	if got := c.get(); got["default"] == nil {
		t.Errorf("got %v", got)
	}
	c.ask("ROOTCA")
	if got := c.get(); got["ROOTCA"] == nil || len(got) != 1 {
		t.Errorf("got %v, want ROOTCA alone", got)
	}
	source.put(keyPair("2"))
	if got := c.get(); got["default"] == nil || len(got) != 1 {
		t.Errorf("got %v, want default alone", got)
	}
}

func TestANameNobodyConfiguredIsLeftOutAndTheOthersAreServed(t *testing.T) {
	conn := dial(t, start(t, newDrawer(keyPair("1")), sds.Config{}))
	c := open(t, conn)
	c.ask("kubernetes://stolen", "default")
	if got := c.get(); len(got) != 1 || got["default"] == nil {
		t.Errorf("got %v", got)
	}
	_, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{
		TypeUrl: sds.TypeURL, ResourceNames: []string{"kubernetes://stolen"},
	})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a fetch of it: %v, want NotFound", err)
	}
}

func TestCloseEndsStreamsWithUnavailable(t *testing.T) {
	path := filepath.Join(shortDir(t), "socket")
	server, err := sds.Listen(sds.Config{Path: path}, newDrawer(keyPair("1")))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	c := open(t, dial(t, path))
	c.ask("default")
	c.get()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- server.Close(ctx) }()
	if _, err := c.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
	_ = c.CloseSend()
	if err := errors.Join(<-closed, <-served); err != nil {
		t.Error(err)
	}
}

func TestTheSocketHasItsModeAndIsTheOnlyThingOthersFind(t *testing.T) {
	for mode, want := range map[os.FileMode]os.FileMode{0: 0o600, 0o660: 0o660, 0o666: 0o666} {
		path := filepath.Join(shortDir(t), "new", "socket")
		start(t, newDrawer(), sds.Config{Path: path, Mode: mode})
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("mode %v: %v, %v", mode, info.Mode(), err)
		}
		if dir, _ := os.Stat(filepath.Dir(path)); dir.Mode().Perm() != 0o700 {
			t.Errorf("the folder has mode %v", dir.Mode())
		}
	}
}

func TestWhatIsAtThePathIsReplacedOnlyIfItIsADeadSocketOfOurs(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(t *testing.T, path string)
		want string
	}{
		"nothing": {func(*testing.T, string) {}, ""},
		"dead socket": {func(t *testing.T, path string) {
			l := listenPlain(t, path)
			l.SetUnlinkOnClose(false)
			_ = l.Close()
		}, ""},
		"live socket":     {func(t *testing.T, path string) { listenPlain(t, path) }, "served by another program"},
		"file":            {func(t *testing.T, path string) { writeFile(t, path) }, "is no socket"},
		"link to a file":  {func(t *testing.T, path string) { writeFile(t, path+".x"); _ = os.Symlink(path+".x", path) }, "is no socket"},
		"another's":       {func(t *testing.T, path string) { deadSocketOf(t, path, 65534) }, "socket of another user"},
		"link as a lock":  {func(t *testing.T, path string) { writeFile(t, path+".x"); _ = os.Symlink(path+".x", path+".lock") }, "open the lock"},
		"another server":  {func(t *testing.T, path string) { start(t, newDrawer(), sds.Config{Path: path}) }, "another Countersign"},
		"too long a path": {nil, "107 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(shortDir(t), "socket")
			if c.put == nil {
				path += strings.Repeat("x", 100)
			} else {
				c.put(t, path)
			}
			server, err := sds.Listen(sds.Config{Path: path}, newDrawer())
			if err == nil {
				t.Cleanup(func() { _ = server.Close(context.Background()) })
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestAnotherSocketAtThePathIsLeftAloneAtTheEnd(t *testing.T) {
	path := filepath.Join(shortDir(t), "socket")
	server, err := sds.Listen(sds.Config{Path: path}, newDrawer())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path)
	if err := server.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error("what somebody else had put there is gone")
	}
}

func TestOnlyPeersOfThePolicyAreAnswered(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	for name, c := range map[string]struct {
		policy sds.Policy
		uid    uint32
		want   string
	}{
		"own user":         {sds.Policy{}, 0, "SERVING"},
		"another":          {sds.Policy{}, 65534, "PermissionDenied: uid 65534, gid 65534 may not ask here"},
		"allowed user":     {sds.Policy{UIDs: []uint32{65534}}, 65534, "SERVING"},
		"allowed group":    {sds.Policy{GIDs: []uint32{65534}}, 65534, "SERVING"},
		"refused by group": {sds.Policy{Refuse: func(p sds.Peer) error { return fmt.Errorf("pid known: %v", p.PID > 0) }}, 0, "PermissionDenied: pid known: true"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			socket := start(t, newDrawer(), sds.Config{Path: filepath.Join(dir, "socket"), Mode: 0o666, Policy: c.policy})
			if got := askAs(t, dir, socket, c.uid); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// askAs runs this test's program as another user, to ask for the server's health.
func askAs(t *testing.T, dir, socket string, uid uint32) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "ask")
	if err := os.WriteFile(program, self, 0o755); err != nil { // where that user may read it
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = []string{asChild + "=" + socket}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func askHealth(socket string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	answer, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	return answer.Status.String()
}

func TestNoKeyIsLogged(t *testing.T) {
	out := &lockedWriter{}
	pair := keyPair("1")
	pair.Key = []byte("-----BEGIN PRIVATE KEY-----")
	socket := start(t, newDrawer(pair), sds.Config{Log: slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	c := open(t, dial(t, socket))
	c.ask("default", "unknown\x00name")
	c.get()
	if text := out.String(); !strings.Contains(text, "unknown") || strings.Contains(text, "PRIVATE KEY") {
		t.Errorf("the log shows the key, or not the refused name: %d bytes", len(text))
	}
}

type lockedWriter struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedWriter) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func listenPlain(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func deadSocketOf(t *testing.T, path string, uid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make another user's socket")
	}
	l := listenPlain(t, path)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
}
