//go:build e2e

package e2e

import (
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/discovery/folder"
)

const oneCluster = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: web
type: STATIC
connect_timeout: 1s
`

// refuse asks for all clusters, and refuses them for the reason; it stays there.
func (d *standalone) refuse(t *testing.T, reason string) {
	t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.dialTLS(t)).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "e2e"}, TypeUrl: folder.ClusterURL}); err != nil {
		t.Fatal(err)
	}
	for refused := false; !refused; {
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		reply := &discoveryv3.DiscoveryRequest{TypeUrl: folder.ClusterURL, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce}
		if refused = len(answer.Resources) > 0; refused { // the folder may not have been read before
			reply.VersionInfo, reply.ErrorDetail = "", status.New(codes.InvalidArgument, reason).Proto()
		}
		if err := stream.Send(reply); err != nil {
			t.Fatal(err)
		}
	}
	poll(t, "the refusal to be known", func() bool { return d.typeStatus(t, folder.ClusterURL).Refusing() })
}

// browsable is the page where a browser reaches it: it knows no unix sockets.
func (d *standalone) browsable(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(&httputil.ReverseProxy{Transport: unixHTTP(t, d.page).Transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: "localhost"})
	}})
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// It is one test, as a browser takes its time to start.
func TestDiscoveryPageInRealBrowser(t *testing.T) {
	t.Parallel()
	needChromium(t)
	d := startStandalone(t)
	d.write(t, "clusters.yaml", oneCluster)
	d.write(t, "bad.yaml", "name: [\n")
	d.refuse(t, "no cluster of <b>that</b> kind: "+strings.Repeat("a-long-word", 12))
	b, address := openBrowser(t), d.browsable(t)
	for _, c := range []struct {
		width  int
		scheme string
	}{{320, "light"}, {320, "dark"}, {1440, "light"}, {1440, "dark"}} {
		t.Run(fmt.Sprintf("is read %d wide, %s", c.width, c.scheme), func(t *testing.T) {
			b.wide(t, c.width, c.scheme, "screen")
			b.open(t, address)
			text := eval[string](t, b, "document.body.innerText")
			for _, want := range []string{"File bad.yaml is invalid", "Clients rejecting a Cluster: 1", "no cluster of <b>that</b> kind", "/ns/e2e/sa/client", "held"} {
				if !strings.Contains(text, want) {
					t.Errorf("the page does not show %q:\n%s", want, text)
				}
			}
			if wide := eval[int](t, b, "document.documentElement.scrollWidth"); wide > c.width {
				t.Errorf("the page is %d wide", wide)
			}
			if over := eval[int](t, b, `[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth).length`); over > 0 && c.width == 320 {
				t.Errorf("%d tables are wider than a phone", over)
			}
			mustBeAPicture(t, b.picture(t, fmt.Sprintf("discovery-%d-%s.png", c.width, c.scheme)), c.width, c.scheme)
			b.mustBeCalm(t)
		})
	}
	if said := b.accessible(t); !slices.Contains(said, "heading: Problems") || !slices.Contains(said, "region: Open streams") || !slices.Contains(said, "button: Pause updates") {
		t.Errorf("the page shows %q", said)
	}
	eval[bool](t, b, "window.same = true")
	d.write(t, "bad.yaml", "hosts: {db.example.org: {ips: [10.0.0.9], registry: External}}\n")
	poll(t, "the page to say that the file is good", func() bool {
		return !strings.Contains(eval[string](t, b, `document.getElementById("troubles").innerText`), "bad.yaml")
	})
	if !eval[bool](t, b, "window.same === true") {
		t.Error("the page was loaded anew")
	}
	b.mustBeCalm(t)
}
