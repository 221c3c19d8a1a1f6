//go:build linux

package program

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var (
	page         = flag.String("page", "", "write the figures into this page, between its marks")
	certificates = flag.Int("certificates", 0, "measure with so many for each row: make bench NAME=door")
	idle         = flag.String("idle", "", "measure the memory of so many idle connections, such as 1000,10000")
)

// TestDoorFigures measures the shipped programs, and beside them istiod's CA and what a certificate costs
// at least.
// Times depend on what else the machine does; CPU for each certificate hardly does.
func TestDoorFigures(t *testing.T) {
	if *certificates == 0 {
		t.Skip("make bench NAME=door measures")
	}
	measure := func() error {
		measureDoor(t)
		return nil
	}
	if *page == "" {
		_ = measure()
		return
	}
	if err := figures.Write(*page, "make bench NAME=door", measure); err != nil {
		t.Fatal(err)
	}
}

func measureDoor(t *testing.T) {
	fmt.Println("| CreateCertificate, provider file, client on the same cores | callers | median (p99) | certificates a second | CPU for each: all (client, countersign-ra, provider) | istiod: certificates a second, CPU for each: all (client, istiod) | rate : istiod | CPU : istiod | the same checks in one process: CPU for each, : istiod | bare: CPU for each |\n|---|---|---|---|---|---|---|---|---|---|")
	before := load()
	for _, kind := range []struct {
		says string
		key  crypto.Signer
	}{{"RSA 2048", newRSA(t)}, {"ECDSA P-256", newECDSA(t)}} {
		authority := newRootOf(t, kind.key)
		b := newDoorBench(t, authority)
		peer, least, checked := startPeer(t, authority), startLeast(t, authority), startChecked(t, authority)
		for _, callers := range []int{1, 64, 512} {
			got, other, floor, bare := b.measure(callers), peer.measure(callers), checked.measure(callers), least.measure(callers)
			fmt.Printf("| the CA's key is %s | %d | %.1f ms (%.1f ms) | %.0f | %.2f ms (%.2f, %.2f, %.2f) | %.0f, %.2f ms (%.2f, %.2f) | %.2f | %.2f | %.2f ms, %.2f | %.2f ms |\n", kind.says, callers,
				inMS(got.median), inMS(got.p99), got.rate, inMS(got.all()), inMS(got.client), inMS(got.ra), inMS(got.provider),
				other.rate, inMS(other.all()), inMS(other.client), inMS(other.ra), got.rate/other.rate, float64(got.all())/float64(other.all()),
				inMS(floor.all()), float64(floor.all())/float64(other.all()), inMS(bare.all()))
		}
		b.replica.Kill()
		peer.Kill()
	}
	b := newDoorBench(t, newRootOf(t, newECDSA(t)))
	fmt.Println("\n| idle connections of countersign-ra, one stub each | resident memory for each | heap and stacks in use for each |\n|---|---|---|")
	for text := range strings.SplitSeq(*idle, ",") {
		if n, err := strconv.Atoi(text); err == nil {
			b.idle(n)
		}
	}
	b.replica.Kill() // its memory still falls
	b = newDoorBench(t, newRootOf(t, newECDSA(t)))
	fmt.Println("\n| connections of strangers, opened from 20 addresses and left idle | open at a time | more resident memory in all |\n|---|---|---|")
	b.strangers(10_000)
	fmt.Printf("\nThe machine's load average was %s before and %s afterwards.\n", before, load())
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// load is that of the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func newRSA(t *testing.T) crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newECDSA(t *testing.T) crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// rootOf is a self-signed CA.
type rootOf struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newRootOf(t *testing.T, key crypto.Signer) rootOf {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert := certtest.Sign(t, template, template, key.Public(), key)
	return rootOf{cert, key, pki.EncodeCertificates([]*x509.Certificate{cert})}
}

// write puts it into a folder as the provider file reads it.
func (a rootOf) write(t *testing.T, dir string) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	key, err := pki.EncodeKey(a.key)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"ca-key.pem": key, "ca-cert.pem": a.pem, "root-cert.pem": a.pem} {
		write(t, filepath.Join(dir, name), string(content))
	}
}

// forFigures is a mesh whose callers have tokens of an OpenID Connect issuer: no API server is asked.
const forFigures = `
cluster: {kubeconfig: DIR/kube.yaml}
dev: true
providers: [{name: file, settings: {dir: DIR/ca}}]
authorities: [{name: file, limits: {rate: 10000, burst: 10000, in_flight: 64}}]
istio:
  listen: 127.0.0.1:0
  certificate: {dns_names: [countersign-ra.countersign.svc]}
  issuers: [{issuer: https://issuer.test, cluster: outside, jwks_file: DIR/jwks.json}]
rules:
- name: mesh
  match: {requests: [istio], clusters: [outside]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
audit: {file: DIR/audit.log}
leader_election: {duration: 5s}
status: {address: 'unix:DIR/page'}
`

// crowd are callers with connections that stay.
type crowd struct {
	t       *testing.T
	address string
	root    []byte
	tokens  *tickets
	pids    [2]int // of countersign-ra or istiod, and of the provider; zero: there are none
}

type doorBench struct {
	crowd
	replica *replica
}

func newDoorBench(t *testing.T, authority rootOf) *doorBench {
	issuer := newRS256(t)
	dir := files(t, newAPIServer(t), forFigures)
	authority.write(t, filepath.Join(dir, "ca"))
	write(t, filepath.Join(dir, "jwks.json"), string(issuer.jwks()))
	cmd := exec.Command(programs.Path(t, "countersign-ra"), "serve", "--config", filepath.Join(dir, "c.yaml"))
	cmd.Env = append(proctest.Environ(dir), "COUNTERSIGN_PROVIDER_PATH="+programs.Folder(t, "countersign-provider-file"))
	r := launch(t, dir, cmd)
	r.kills = true
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	return &doorBench{crowd{t, r.report(t).Istio.Address, authority.pem, &tickets{issuer: issuer}, [2]int{r.PID(), childOf(t, r.PID())}}, r}
}

func childOf(t *testing.T, pid int) int {
	t.Helper()
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range all {
		text, _ := os.ReadFile(path) // a thread may have ended
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			child, _ := strconv.Atoi(fields[0])
			return child
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}

// taken is what certificates took, CPU for each.
type taken struct {
	median, p99          time.Duration
	rate                 float64
	client, ra, provider time.Duration
}

func (k taken) all() time.Duration { return k.client + k.ra + k.provider }

// measure has callers ask at once until all certificates are there.
func (c *crowd) measure(callers int) (out taken) {
	c.t.Helper()
	conns := make([]*grpc.ClientConn, callers)
	for i := range conns {
		conns[i] = c.dial("")
		reach(c.t, conns[i], "") // handshakes do not count
	}
	c.tokens.make(c.t, *certificates)
	before, began := c.cpu(), time.Now()
	all := c.each(conns, *certificates)
	took, after := time.Since(began), c.cpu()
	for _, conn := range conns {
		_ = conn.Close()
	}
	n := time.Duration(len(all))
	slices.Sort(all)
	return taken{all[n/2], all[n*99/100], float64(n) / took.Seconds(), (after[0] - before[0]) / n, (after[1] - before[1]) / n, (after[2] - before[2]) / n}
}

// cpu is what the client, countersign-ra and the provider have used.
func (c *crowd) cpu() (used [3]time.Duration) {
	c.t.Helper()
	for i, pid := range []int{os.Getpid(), c.pids[0], c.pids[1]} {
		if pid == 0 {
			continue
		}
		var err error
		if used[i], _, err = figures.Usage(pid); err != nil {
			c.t.Fatal(err)
		}
	}
	return used
}

// each asks for n certificates, and returns how long each took.
func (c *crowd) each(conns []*grpc.ClientConn, n int) []time.Duration {
	c.t.Helper()
	took, failed := make([]time.Duration, n), make([]error, len(conns))
	var next atomic.Int64
	var all sync.WaitGroup
	for caller, conn := range conns {
		all.Go(func() {
			stub := security.NewClient(conn)
			for i := next.Add(1) - 1; i < int64(n) && failed[caller] == nil; i = next.Add(1) - 1 {
				began := time.Now()
				failed[caller] = c.ask(stub)
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		c.t.Fatal(err)
	}
	return took
}

func (c *crowd) ask(stub security.IstioCertificateServiceClient) error {
	token, csr := c.tokens.take()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	reply, err := stub.CreateCertificate(ctx, &security.IstioCertificateRequest{Csr: csr, ValidityDuration: 86_400})
	if err == nil && len(reply.GetCertChain()) < 2 {
		err = errors.New("the reply has no chain")
	}
	return err
}

// dial connects, from an address of loopback.
func (c *crowd) dial(from string) *grpc.ClientConn {
	c.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.root)
	dialer := &net.Dialer{}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: caAddress})),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// idle prints what connections take whose client was authenticated once.
func (b *doorBench) idle(n int) {
	b.t.Helper()
	b.tokens.make(b.t, 1)
	resident, used := b.memory()
	conns := make([]*grpc.ClientConn, n)
	var all sync.WaitGroup
	for m := range 8 {
		all.Go(func() {
			for i := m; i < n; i += 8 {
				conns[i] = b.dial(fmt.Sprintf("127.0.0.%d", 2+i/1000)) // an address has 2,000 at most
				reach(b.t, conns[i], b.tokens.ready[0])
			}
		})
	}
	all.Wait()
	resident2, used2 := b.memory()
	fmt.Printf("| %d | %.1f KiB | %.1f KiB |\n", n, (resident2-resident)/float64(n), (used2-used)/float64(n))
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// strangers prints what connections take that never carry a call.
func (b *doorBench) strangers(n int) {
	b.t.Helper()
	resident, _ := b.memory()
	conns := make([]net.Conn, n)
	var open atomic.Int64
	var all, reading sync.WaitGroup
	for m := range 8 {
		all.Go(func() {
			for i := m; i < n; i += 8 {
				conn, err := b.stranger(fmt.Sprintf("127.0.1.%d", 1+i%20))
				if err != nil {
					continue
				}
				conns[i] = conn
				open.Add(1)
				reading.Go(func() {
					_, _ = io.Copy(io.Discard, conn)
					open.Add(-1)
				})
			}
		})
	}
	all.Wait()
	resident2, _ := b.memory()
	fmt.Printf("| %d | %d | %.1f MiB |\n", n, open.Load(), (resident2-resident)/1024)
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
	reading.Wait()
}

// stranger speaks TLS and begins HTTP/2.
func (b *doorBench) stranger(from string) (net.Conn, error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"},
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", b.address)
	if err == nil {
		_, err = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	}
	return conn, err
}

// reach makes the connection: a call without a CSR is refused.
func reach(t *testing.T, conn *grpc.ClientConn, token string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	if _, err := security.NewClient(conn).CreateCertificate(ctx, &security.IstioCertificateRequest{}); err == nil {
		t.Error("a call without a CSR has a certificate")
	}
}

// memory is the program's, in KiB: resident, and heap and stacks in use.
func (b *doorBench) memory() (resident, used float64) {
	b.t.Helper()
	_, text := b.replica.page("/metrics")
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "go_memstats_heap_inuse_bytes" || name == "go_memstats_stack_inuse_bytes" {
			bytes, _ := strconv.ParseFloat(value, 64)
			used += bytes / 1024
		}
	}
	_, resident, err := figures.Usage(b.replica.PID())
	if err != nil || used == 0 {
		b.t.Fatal(err, "no memory in the metrics")
	}
	return resident, used
}

// tickets are tokens of an OpenID Connect issuer, and CSRs to go with them. An account asks eight
// times, as each has a budget, and each time with another key.
type tickets struct {
	issuer *rs256

	mu    sync.Mutex
	ready []string
	taken int
}

const eachAsks = 8

// make makes tokens for n more certificates.
func (i *tickets) make(t *testing.T, n int) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.ready)*eachAsks-i.taken < n {
		account := len(i.ready)
		i.ready = append(i.ready, i.issuer.token(t, fmt.Sprintf("system:serviceaccount:ns-%d:sa-%d", account%100, account)))
	}
}

func (i *tickets) take() (token, csr string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.taken
	i.taken++
	return i.ready[n/eachAsks], someCSRs()[n%len(someCSRs())]
}

// someCSRs have a key each, and no names: clients' keys are not what is measured.
var someCSRs = sync.OnceValue(func() (all []string) {
	for range 64 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			panic(err)
		}
		all = append(all, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})))
	}
	return all
})

// least is the least that a CA of this API does: TLS, gRPC, the CSR's signature and its own. It
// asks nobody who calls, and keeps no record.
type least struct {
	security.UnimplementedIstioCertificateServiceServer
	rootOf
	id     *url.URL
	checks *checks // nil: it makes none but that of the CSR
}

func startLeast(t *testing.T, authority rootOf) *crowd { return startBare(t, authority, nil) }

func startBare(t *testing.T, authority rootOf, also *checks) *crowd {
	template := certtest.Leaf(t, time.Hour)
	template.DNSNames = []string{caAddress}
	own := newECDSA(t)
	template.SerialNumber = big.NewInt(2)
	der := certtest.Sign(t, template, authority.cert, own.Public(), authority.key).Raw
	id, err := url.Parse(webID)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: own}}})))
	security.Register(server, &least{rootOf: authority, id: id, checks: also})
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(on) }()
	t.Cleanup(server.Stop)
	issuer := newRS256(t)
	if also != nil {
		issuer = also.issuer
	}
	return &crowd{t: t, address: on.Addr().String(), root: authority.pem, tokens: &tickets{issuer: issuer}}
}

// CreateCertificate implements Istio's CA API.
func (l *least) CreateCertificate(ctx context.Context, request *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	if err := l.checks.before(ctx, request); err != nil {
		return nil, err
	}
	csr, err := pki.ParseCSR([]byte(request.GetCsr()))
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		NotBefore: time.Now(), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, URIs: []*url.URL{l.id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, l.cert, csr.PublicKey, l.key)
	if err != nil {
		return nil, err
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := l.checks.after(csr.PublicKey, l.id.String(), chain); err != nil {
		return nil, err
	}
	return &security.IstioCertificateResponse{CertChain: []string{string(chain), string(l.pem)}}, nil
}
