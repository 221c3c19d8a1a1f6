//go:build linux

package kubetest

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// What is waited for comes in a second or two, and takes longer where cores are shared.
const patience = 90 * time.Second

// Options are what one API server has differently.
type Options struct {
	// Name is in the names of its logs. Default: "cluster".
	Name string
	// Audiences are those that a TokenReview may ask for beside the server's own. Default: istio-ca.
	Audiences []string
	// AllowAll is a server that authorizes whoever is authenticated to do anything.
	AllowAll bool
	// Flags are added to kube-apiserver's, and win over those that this package gives it.
	Flags []string
}

// Cluster is a running API server. Its methods end the test where they fail, and are not
// safe for concurrent use, except what Client and ClientFor return.
type Cluster struct {
	URL string // https://127.0.0.1:PORT, and the same after Resume
	CA  []byte // PEM: of the server's and the clients' certificates

	t         testing.TB
	opts      Options
	folder    string
	binaries  string
	port      int
	authority *authority
	server    *process
	admin     *kubernetes.Clientset
}

// Start returns a cluster that is ready and that ends with the test.
func Start(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	opts.Name = cmp.Or(opts.Name, "cluster")
	if opts.Audiences == nil {
		opts.Audiences = []string{"istio-ca"}
	}
	c := &Cluster{t: tb, opts: opts, folder: shortFolder(tb), binaries: binaries(tb), port: reservePort(tb), authority: newAuthority(tb)}
	c.URL, c.CA = "https://"+address(c.port), c.authority.pem
	c.writeFiles()
	run(tb, c.log("etcd"), filepath.Join(c.binaries, "etcd"), c.etcdFlags()...)
	c.admin = c.ClientFor(c.Admin())
	c.Resume()
	return c
}

func binaries(tb testing.TB) string {
	tb.Helper()
	folder := os.Getenv("COUNTERSIGN_KUBERNETES")
	if folder == "" {
		tb.Fatal("COUNTERSIGN_KUBERNETES does not name the folder of kube-apiserver and etcd: `make e2e` builds it")
	}
	return folder
}

// shortFolder is one whose sockets have names that are short enough, whatever the test is called.
func shortFolder(tb testing.TB) string {
	tb.Helper()
	folder, err := os.MkdirTemp("", "kubetest")
	must(tb, err)
	tb.Cleanup(func() { must(tb, os.RemoveAll(folder)) })
	return folder
}

// Stop kills the API server: connections break, and new ones are refused. What it stores stays.
func (c *Cluster) Stop() {
	c.server.kill()
}

// Resume starts the API server again, at the same address and with what it had stored,
// and returns when it is ready.
func (c *Cluster) Resume() {
	c.t.Helper()
	c.server = run(c.t, c.log("kube-apiserver"), filepath.Join(c.binaries, "kube-apiserver"), c.serverFlags()...)
	c.await("the API server's /readyz", func(ctx context.Context) (bool, error) {
		if err := c.server.ended(); err != nil {
			c.t.Fatal(err)
		}
		// A refused connection is one that is not there yet.
		err := c.admin.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return err == nil, err
	})
}

// await asks until it is so.
func (c *Cluster) await(what string, so func(context.Context) (bool, error)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		ok, err := so(ctx)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("%s, after %s: %v", what, patience, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Client may do everything.
func (c *Cluster) Client() *kubernetes.Clientset { return c.admin }

// Config is Client's, and may be changed.
func (c *Cluster) Config() *rest.Config { return c.ConfigFor(c.Admin()) }

// AdminKubeconfig is the kubeconfig of one who may do everything.
func (c *Cluster) AdminKubeconfig() []byte { return c.Kubeconfig(c.Admin()) }

// Kubeconfig holds the cluster, the user's credentials and the CA inline.
func (c *Cluster) Kubeconfig(user *clientcmdapi.AuthInfo) []byte {
	c.t.Helper()
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{c.opts.Name: {Server: c.URL, CertificateAuthorityData: c.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"user": user},
		Contexts:       map[string]*clientcmdapi.Context{"context": {Cluster: c.opts.Name, AuthInfo: "user"}},
		CurrentContext: "context",
	})
	must(c.t, err)
	return text
}

// ConfigFor is how a user connects, unthrottled.
func (c *Cluster) ConfigFor(user *clientcmdapi.AuthInfo) *rest.Config {
	c.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig(user))
	must(c.t, err)
	config.QPS = -1
	return config
}

// ClientFor is a user's; its connections are closed when the test ends.
func (c *Cluster) ClientFor(user *clientcmdapi.AuthInfo) *kubernetes.Clientset {
	c.t.Helper()
	config := c.ConfigFor(user)
	client, err := rest.HTTPClientFor(config)
	must(c.t, err)
	set, err := kubernetes.NewForConfigAndClient(config, client)
	must(c.t, err)
	c.t.Cleanup(func() { closeIdle(client) })
	return set
}

func closeIdle(client *http.Client) { utilnet.CloseIdleConnectionsFor(client.Transport) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (c *Cluster) log(program string) string {
	return filepath.Join(c.folder, strings.ReplaceAll(c.opts.Name, "/", "-")+"-"+program+".log")
}
