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

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Patience is the deadline for waits that take seconds, or longer on shared cores.
const Patience = 3 * time.Minute

// Options customize one API server.
type Options struct {
	// Name appears in the names of its logs. Default: "cluster".
	Name string
	// Audiences are the audiences of TokenReviews besides the server's own. Default: istio-ca.
	Audiences []string
	// AllowAll authorizes every authenticated user to do anything.
	AllowAll bool
	// Nodes restricts each node to its own objects, as every real cluster does: the Node
	// authorizer and the admission plugin NodeRestriction. Nodes require it.
	Nodes bool
	// Flags are added to kube-apiserver's flags and override them.
	Flags []string
}

// Cluster is a running API server. Its methods fail the test on error and are not safe
// for concurrent use, except for the results of Client and ClientFor.
type Cluster struct {
	URL string // https://127.0.0.1:PORT, unchanged after Resume
	CA  []byte // PEM: issuer of the server and client certificates

	t         testing.TB
	opts      Options
	folder    string
	binaries  string
	port      int
	authority authority
	server    *proctest.Process
	admin     *kubernetes.Clientset
}

// Start returns a cluster that is ready and ends with the test.
func Start(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	opts.Name = cmp.Or(opts.Name, "cluster")
	if opts.Audiences == nil {
		opts.Audiences = []string{"istio-ca"}
	}
	c := &Cluster{t: tb, opts: opts, folder: proctest.Folder(tb), binaries: binaries(tb), port: reservePort(tb), authority: authority{certtest.Root(tb)}}
	c.URL, c.CA = "https://"+address(c.port), c.authority.PEM()
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
		tb.Fatal("COUNTERSIGN_KUBERNETES does not name the folder of kube-apiserver and etcd: `make check NAME=kubernetes` builds it")
	}
	return folder
}

// Stop kills the API server: connections break and new ones are refused. Its data stays.
func (c *Cluster) Stop() {
	c.server.Kill()
}

// Resume restarts the API server with the same address and data, and returns when it is
// ready.
func (c *Cluster) Resume() {
	c.t.Helper()
	c.server = run(c.t, c.log("kube-apiserver"), filepath.Join(c.binaries, "kube-apiserver"), c.serverFlags()...)
	c.await("the API server's /readyz", func(ctx context.Context) (bool, error) {
		if state := c.server.Ended(); state != nil {
			c.t.Fatalf("%s ended: %s", c.server, state)
		}
		// A refused connection means that it is not up yet.
		err := c.admin.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return err == nil, err
	})
}

func (c *Cluster) await(what string, so func(context.Context) (bool, error)) {
	c.t.Helper()
	Await(c.t, what, so)
}

// Await polls until the condition holds. After [Patience] it fails the test with what did
// not happen and the last error.
func Await(tb testing.TB, what string, so func(context.Context) (bool, error)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var last error
	for {
		ok, err := so(ctx)
		if ok {
			return
		}
		if ctx.Err() == nil { // else it is just that
			last = err
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("%s, after %s: %v", what, Patience, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Client returns a client with all rights.
func (c *Cluster) Client() *kubernetes.Clientset { return c.admin }

// Config returns the configuration of Client; the caller may modify it.
func (c *Cluster) Config() *rest.Config { return c.ConfigFor(c.Admin()) }

// AdminKubeconfig returns the kubeconfig of a user with all rights.
func (c *Cluster) AdminKubeconfig() []byte { return c.Kubeconfig(c.Admin()) }

// Kubeconfig returns one with the cluster, the user's credentials and the CA inline.
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

// Contexts writes an operator's kubeconfig with a context for each cluster, and returns its path.
func Contexts(tb testing.TB, clusters map[string]*Cluster) string {
	tb.Helper()
	all := clientcmdapi.NewConfig()
	for name, c := range clusters {
		all.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: c.CA}
		all.AuthInfos[name] = c.Admin()
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	must(tb, clientcmd.WriteToFile(*all, path))
	return path
}

// ConfigFor returns the unthrottled client configuration of a user.
func (c *Cluster) ConfigFor(user *clientcmdapi.AuthInfo) *rest.Config {
	c.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig(user))
	must(c.t, err)
	config.QPS = -1
	return config
}

// ClientFor returns a user's client; its connections close when the test ends.
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

var must = fatal.If

func (c *Cluster) log(program string) string {
	return filepath.Join(c.folder, strings.ReplaceAll(c.opts.Name, "/", "-")+"-"+program+".log")
}
