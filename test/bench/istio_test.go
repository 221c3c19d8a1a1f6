package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/internal/test/programs"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

// istiodName is in the certificate of istiod's CA.
const istiodName = "istiod.istio-system.svc"

// BenchmarkBesideIstio measures the agent beside Istio's (COUNTERSIGN_ISTIO_AGENT), with the same
// variables, CA and client: make bench NAME=istio.
func BenchmarkBesideIstio(b *testing.B) {
	root, err := programs.Root()
	if err != nil {
		b.Fatal(err)
	}
	b.Chdir(root)
	measure := func() error { return besideIstio(programs.Foreign(b, "COUNTERSIGN_ISTIO_AGENT")) }
	if *page == "" {
		err = measure()
	} else {
		err = figures.Write(*page, "make bench NAME=istio", measure)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func besideIstio(binary string) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	mesh, err := serveMesh(b.dir)
	if err != nil {
		return err
	}
	defer mesh.server.Stop()
	theirs := filepath.Join(b.root, "istio")
	if err := unpack(binary, theirs); err != nil {
		return err
	}
	fmt.Println("| by Istio's variables, the same CA and client on the same cores | Istio's agent | countersign | ratio |\n|---|---|---|---|")
	users := map[uint32]string{b.uid: "ordinary user, provider a verified process known by its receipt"}
	if os.Geteuid() == 0 {
		users[0] = "root, provider a verified process hashed in full"
	}
	for uid, name := range users {
		if err := b.pair(mesh, theirs, uid, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// pair measures both agents of a user, who take turns.
func (b *bench) pair(mesh *mesh, theirs string, uid uint32, name string) error {
	both := []contender{{path: theirs, args: []string{"agent"}, socket: "var/run/secrets/workload-spiffe-uds/socket"}, {path: filepath.Join(b.root, "countersign"), socket: "s"}}
	pin, err := sha256Of(filepath.Join(b.root, "countersign-provider-citadel"))
	if err != nil {
		return err
	}
	both[1].args = []string{"agent", "--socket", "s", "--log-level", "error", "--set", "providers.citadel.sha256=" + pin, "--set", "providers.citadel.token.file=var/run/secrets/tokens/istio-token"}
	for i := range both {
		both[i].uid = uid
		if err := both[i].home(b, mesh); err != nil {
			return err
		}
	}
	both[1].env = append(both[1].env, "CA_ADDR="+mesh.address) // Istio's agent takes its discoveryAddress
	time.Sleep(settle)                                         // a receipt is for a binary that has not just changed
	var took, used [2][]time.Duration
	for round := range startRuns + 1 {
		for i := range both {
			wall, cpu, err := both[i].start()
			if err != nil {
				return err
			}
			if round > 0 { // the first writes the receipt
				took[i], used[i] = append(took[i], wall), append(used[i], cpu)
			}
		}
	}
	besides("exec to both secrets, "+name, "ms", milliseconds(median(took[0])), milliseconds(median(took[1])))
	besides("… CPU until then, with the provider's", "ms", milliseconds(median(used[0])), milliseconds(median(used[1])))
	if uid != b.uid {
		return nil
	}
	return errors.Join(idle(both), crowds(both))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func besides(figure, unit string, theirs, ours float64) {
	fmt.Printf("| %s | %.1f %s | %.1f %s | %.2f |\n", figure, theirs, unit, ours, unit, ours/theirs)
}

// idle measures what both hold that have served their secrets twice.
func idle(both []contender) error {
	var resident, anonymous, private [2]float64
	for i := range both {
		cmd, err := both[i].serving()
		if err != nil {
			return err
		}
		time.Sleep(settle)
		again := both[i].await()
		rss, rssErr := figures.Resident(cmd.Process.Pid)
		anon, anonErr := figures.Anonymous(cmd.Process.Pid)
		own, ownErr := privateOf(cmd.Process.Pid)
		resident[i], anonymous[i], private[i] = float64(rss)/1024, float64(anon)/1024, float64(own)/1024
		end(cmd)
		if err := errors.Join(again, rssErr, anonErr, ownErr); err != nil {
			return err
		}
	}
	besides("idle agent, resident", "MiB", resident[0], resident[1])
	besides("… of that anonymous", "MiB", anonymous[0], anonymous[1])
	besides("… private, with its provider", "MiB", private[0], private[1])
	return nil
}

// privateOf returns what an agent and its provider, if any, hold alone.
func privateOf(agent int) (kib int, err error) {
	kib, err = figures.Private(agent)
	if child, none := childOf(agent); none == nil && err == nil {
		var more int
		more, err = figures.Private(child)
		kib += more
	}
	return kib, err
}

// contender is an agent.
type contender struct {
	path, socket string
	args         []string
	uid          uint32

	dir string
	env []string
}

// home makes the folder that the agent runs in, with the files of an Istio pod.
func (c *contender) home(b *bench, mesh *mesh) error {
	dir, err := os.MkdirTemp(b.dir, "pod")
	if err != nil {
		return err
	}
	c.dir = dir
	tokens := filepath.Join(dir, "var/run/secrets/tokens")
	err = errors.Join(os.MkdirAll(tokens, 0o700), os.WriteFile(filepath.Join(tokens, "istio-token"), []byte("a-token"), 0o600),
		filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, int(c.uid), int(c.uid)))
		}))
	c.env = []string{
		"HOME=" + dir, "TMPDIR=" + dir, "PATH=/usr/bin:/bin", "CA_ROOT_CA=" + mesh.roots, "XDS_ROOT_CA=" + mesh.roots, "ISTIOD_SAN=" + istiodName,
		`PROXY_CONFIG={"discoveryAddress": "` + mesh.address + `"}`, "CLOUD_PLATFORM=none", "ISTIO_META_CLUSTER_ID=home", "ECC_SIGNATURE_ALGORITHM=ECDSA",
		"TRUST_DOMAIN=cluster.local", "POD_NAMESPACE=shop", "SERVICE_ACCOUNT=web",
	}
	return err
}

// serving starts the agent, and returns when both secrets are there.
func (c *contender) serving() (*exec.Cmd, error) {
	_ = os.Remove(filepath.Join(c.dir, c.socket)) // Istio's agent leaves it
	cmd := asUser(exec.Command(c.path, c.args...), c.uid)
	cmd.Dir, cmd.Env, cmd.Stderr = c.dir, c.env, nil // Istio's agent writes much
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := c.await(); err != nil {
		end(cmd)
		return nil, err
	}
	return cmd, nil
}

func (c *contender) start() (took, cpu time.Duration, err error) {
	begin := time.Now()
	cmd, err := c.serving()
	if err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	defer end(cmd)
	cpu, err = figures.CPU(cmd.Process.Pid)
	if child, none := childOf(cmd.Process.Pid); none == nil && err == nil {
		var more time.Duration
		more, err = figures.CPU(child)
		cpu += more
	}
	return took, cpu, err
}

// await gets both secrets, each on a stream, as Envoy does.
func (c *contender) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialWhenThere(ctx, filepath.Join(c.dir, c.socket))
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	got := make(chan error, 2)
	for _, name := range []string{"default", "ROOTCA"} {
		go func() { got <- getOne(ctx, conn, name) }()
	}
	return errors.Join(<-got, <-got)
}

func getOne(ctx context.Context, conn *grpc.ClientConn, name string) error {
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: []string{name}, Node: &corev3.Node{Id: "bench"}}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && len(answer.GetResources()) != 1 {
		err = fmt.Errorf("%s: got %d secrets", name, len(answer.GetResources()))
	}
	return err
}

// mesh is a CA that answers as istiod does, to anyone.
type mesh struct {
	security.UnimplementedIstioCertificateServiceServer
	ca             *catest.CA
	server         *grpc.Server
	address, roots string
}

func serveMesh(dir string) (*mesh, error) {
	m := &mesh{ca: catest.NewCA(catest.Options{}), roots: filepath.Join(dir, "mesh.pem")}
	pair, err := tls.X509KeyPair(m.ca.Pair(time.Hour, "", istiodName))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.address = listener.Addr().String()
	m.server = grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	security.Register(m.server, m)
	go m.server.Serve(listener) //nolint:errcheck // it ends by Stop
	return m, os.WriteFile(m.roots, m.ca.Bundle().PEM(), 0o644)
}

// CreateCertificate signs with the root last, as istiod does.
func (m *mesh) CreateCertificate(ctx context.Context, in *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	reply, err := m.ca.CSRSign(ctx, ca.SignRequest{CSR: []byte(in.GetCsr()), TTL: time.Duration(in.GetValidityDuration()) * time.Second})
	if err != nil {
		return nil, err
	}
	return &security.IstioCertificateResponse{CertChain: []string{string(reply.Chain), string(reply.Roots)}}, nil
}
