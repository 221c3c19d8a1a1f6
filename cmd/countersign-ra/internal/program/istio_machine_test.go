package program

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	databaseID  = "spiffe://cluster.local/ns/vm/sa/db"
	renewalsFor = "  renewals: {identities: [" + databaseID + "], longest: 72h}\n"
)

// forRenewals is a configuration where one renews without a token.
var forRenewals = strings.Replace(forMesh, "  node_proxies:", renewalsFor+"  node_proxies:", 1) + "budget: {holder: 1000}\n"

// machine is a virtual machine with this repository's agent, set up as Istio's is.
type machine struct {
	*proctest.Process
	certs, token string
}

func (r *replica) machine(t *testing.T, token string) machine {
	t.Helper()
	return startMachine(t, r.report(t).Istio.Address, r.root(t), token)
}

// startMachine runs one whose CA is at an address, and has a root.
func startMachine(t *testing.T, address string, root []byte, token string) machine {
	t.Helper()
	dir := proctest.Folder(t)
	m := machine{certs: filepath.Join(dir, "certs"), token: filepath.Join(dir, "token")}
	write(t, m.token, token)
	write(t, filepath.Join(dir, "root.pem"), string(root))
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(programs.Path(t, "countersign"), "agent", "--dev", "--socket", filepath.Join(dir, "socket"),
		"--runtime-dir", filepath.Join(dir, "run"), "--set", "providers.citadel.token.file="+m.token)
	cmd.Dir = dir
	cmd.Env = append(proctest.Environ(dir),
		"COUNTERSIGN_PROVIDER_PATH="+programs.Folder(t, "countersign-provider-citadel"),
		"CA_ADDR="+address, "CA_ROOT_CA="+filepath.Join(dir, "root.pem"), "ISTIOD_SAN="+caAddress, "PROV_CERT="+m.certs, "OUTPUT_CERTS="+m.certs,
		"TRUST_DOMAIN=cluster.local", "POD_NAMESPACE=vm", "SERVICE_ACCOUNT=db", "SECRET_TTL=30s", "SECRET_GRACE_PERIOD_RATIO=0.9",
	)
	m.Process = proctest.Start(t, cmd)
	return m
}

// pair is what the agent wrote last; ok is false while there is none.
func (m machine) pair() (pair tls.Certificate, ok bool) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(m.certs, "cert-chain.pem"), filepath.Join(m.certs, "key.pem"))
	return pair, err == nil
}

func (m machine) serial() string {
	if pair, ok := m.pair(); ok {
		return pair.Leaf.SerialNumber.String()
	}
	return ""
}

// reload takes over another configuration.
func (r *replica) reload(t *testing.T, text string) {
	t.Helper()
	const taken = "configuration applied"
	before := strings.Count(r.Log.String(), taken)
	write(t, filepath.Join(r.dir, "c.yaml"), strings.ReplaceAll(text, "DIR", r.dir))
	r.Signal(syscall.SIGHUP)
	r.until(t, taken, func() bool { return strings.Count(r.Log.String(), taken) > before })
}

// A machine has a token once, renews by its certificate until the bound, and goes on with a new
// token.
func TestMachineWithThisAgentRenewsWithoutAToken(t *testing.T) {
	t.Parallel()
	r, home, _ := newMesh(t, forRenewals)
	home.addToken("vm-token", bound{"vm", "db", ""}, "")
	vm := r.machine(t, "vm-token")
	r.until(t, "the agent has a certificate", func() bool { return vm.serial() != "" })
	if err := os.Remove(vm.token); err != nil {
		t.Fatal(err)
	}
	r.until(t, "it has renewed three times", func() bool { return r.report(t).Istio.Calls[istioca.Renewed] >= 3 })

	if said := r.report(t).Istio.Renewals; said == nil || said.Chains != 1 || said.Error != "" {
		t.Errorf("%+v", said)
	}
	r.reload(t, strings.ReplaceAll(forRenewals, "longest: 72h", "longest: 1m"))
	const sentence = "renewal without a token is over for this machine"
	r.until(t, "the agent says that it needs a token", func() bool { return strings.Contains(vm.Log.String(), sentence) })
	issued := r.report(t).Istio.Calls[istioca.Issued]
	write(t, vm.token, "vm-token")
	r.until(t, "a new token goes on", func() bool { return r.report(t).Istio.Calls[istioca.Issued] > issued })

	r.reload(t, forRenewals)
	if err := os.Remove(vm.token); err != nil {
		t.Fatal(err)
	}
	before := r.report(t).Istio.Calls[istioca.Renewed]
	r.until(t, "its renewals go on", func() bool { return r.report(t).Istio.Calls[istioca.Renewed] > before })
	r.reload(t, strings.ReplaceAll(forRenewals, renewalsFor, ""))
	seen := r.report(t).Istio.Calls[istioca.Unauthenticated]
	r.until(t, "it is taken out", func() bool { return r.report(t).Istio.Calls[istioca.Unauthenticated] > seen })

	for _, text := range []string{r.Log.String(), vm.Log.String(), read(t, filepath.Join(r.dir, "audit.log"))} {
		if strings.Contains(text, "vm-token") || strings.Contains(text, "PRIVATE KEY") {
			t.Error("a token or a key is shown")
		}
	}
	r.provesHow(t)
}

// provesHow looks for how callers were verified in the audit log.
func (r *replica) provesHow(t *testing.T) {
	t.Helper()
	how := map[string]int{}
	for text := range strings.Lines(read(t, filepath.Join(r.dir, "audit.log"))) {
		var line struct {
			Event   string
			Subject struct{ Verified string }
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		kind, _, _ := strings.Cut(line.Subject.Verified, ",")
		how[line.Event+" "+kind]++
	}
	if how["issued client certificate"] < 3 || how["issued token review"] < 2 || how["refused client certificate"] == 0 {
		t.Errorf("%v", how)
	}
}

// pair demands a certificate and returns it with its key, and its name.
func (c caller) pair() (tls.Certificate, string) {
	c.t.Helper()
	key, err := pki.GenerateKey("")
	if err != nil {
		c.t.Fatal(err)
	}
	id, err := pki.NewIdentity(databaseID, nil, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(c.t.Context(), c.pairs...), patience)
	defer cancel()
	client := security.NewClient(c.conn)
	for {
		reply, err := client.CreateCertificate(ctx, &security.IstioCertificateRequest{Csr: string(csr)})
		if grpcstatus.Code(err) == codes.Unavailable && ctx.Err() == nil {
			continue
		}
		if err != nil {
			c.t.Fatal(err)
		}
		chain, err := pki.ParseCertificates([]byte(strings.Join(reply.GetCertChain()[:len(reply.GetCertChain())-1], "")))
		if err != nil {
			c.t.Fatal(err)
		}
		pair := tls.Certificate{PrivateKey: key, Leaf: chain[0]}
		for _, cert := range chain {
			pair.Certificate = append(pair.Certificate, cert.Raw)
		}
		return pair, chain[0].URIs[0].String()
	}
}

// beside makes the files of another replica with the same CA.
func beside(t *testing.T, first *replica, home *apiServer) (dir string) {
	t.Helper()
	dir = files(t, home, strings.ReplaceAll(forRenewals, "DIR/ca", filepath.Join(first.dir, "ca")))
	if err := os.Mkdir(filepath.Join(dir, "remotes"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// withCertificate connects as a machine does that has no token.
func (r *replica) withCertificate(t *testing.T, root []byte, pair tls.Certificate) caller {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	with := &tls.Config{RootCAs: pool, ServerName: caAddress, Certificates: []tls.Certificate{pair}}
	conn, err := grpc.NewClient(r.report(t).Istio.Address, grpc.WithTransportCredentials(credentials.NewTLS(with)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return caller{t: t, conn: conn}
}

// A copy of a certificate ends the renewals of both at each replica, and the page reports it.
func TestCopyOfAMachinesCertificateIsReported(t *testing.T) {
	t.Parallel()
	first, home, _ := newMesh(t, forRenewals)
	home.addToken("vm-token", bound{"vm", "db", ""}, "")
	second := start(t, beside(t, first, home))
	second.until(t, "it is ready", func() bool { return second.readyz() == http.StatusOK })

	root := first.root(t)
	old, _ := as(t, first.dial(t, root), "vm-token", "").pair()
	thief := first.withCertificate(t, root, old)
	stolen, name := thief.pair()
	if name != databaseID {
		t.Fatal(name)
	}
	first.withCertificate(t, root, stolen).gets(nil, databaseID)
	second.withCertificate(t, root, old).refused(nil, codes.PermissionDenied)
	first.withCertificate(t, root, stolen).refused(nil, codes.PermissionDenied)
	for _, r := range []*replica{first, second} {
		if told := strings.Join(problemsOf(r.report(t)), "\n"); !strings.Contains(told, "A machine's certificate was copied") {
			t.Error(told)
		}
	}
	if _, metrics := first.page("/metrics"); !strings.Contains(metrics, `countersign_ra_istio_calls_total{result="copied"} 1`) {
		t.Error(metrics)
	}
	out, errs, code := says(t, nil, "status", "--address", "unix:"+filepath.Join(first.dir, "page"))
	if code != 0 || !strings.Contains(out, "RENEWALS WITHOUT A TOKEN") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}
