//go:build e2e

package deploy_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubeconfig"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// remoteKubeconfig is what the recipe put into the Secret.
func remoteKubeconfig(t *testing.T, home *kubetest.Cluster) []byte {
	t.Helper()
	secret, err := home.Client().CoreV1().Secrets("istio-system").Get(t.Context(), "remote-east", metav1.GetOptions{})
	must(t, err)
	if secret.Labels["istio/multiCluster"] != "true" || len(secret.Data) != 1 {
		t.Errorf("labels %v, %d keys", secret.Labels, len(secret.Data))
	}
	for name, value := range secret.Annotations {
		t.Errorf("there is an annotation, %s, with %d bytes; a copy of the token?", name, len(value))
	}
	return secret.Data["east"]
}

func TestRealKubeconfigOfTheDiscoveryPageIsAcceptedAndRotated(t *testing.T) {
	home, east := kubetest.Start(t, kubetest.Options{Name: "home"}), kubetest.Start(t, kubetest.Options{Name: "east"})
	home.Namespace("istio-system")
	east.Namespace("istio-system", "shop")
	recipe, _ := docsPage(t, "discovery.md", "bash")
	if len(recipe) != 1 {
		t.Fatalf("the page has %d recipes", len(recipe))
	}
	config := kubetest.Contexts(t, map[string]*kubetest.Cluster{"home": home, "east": east})
	run := func() []byte {
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", recipe[0])
		cmd.Dir = programs.File(t, ".")
		cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + config, "PATH=" + programs.Foreign(t, "COUNTERSIGN_KUBERNETES") + ":" + os.Getenv("PATH")}
		out := done(t, cmd)
		ends, err := time.Parse(time.RFC3339, regexp.MustCompile(`the token for east ends at (\S+)`).FindStringSubmatch(out + "the token for east ends at ?")[1])
		if err != nil || time.Until(ends) < time.Hour {
			t.Errorf("it says that the token ends at %s, %v:\n%s", ends, err, out)
		}
		return remoteKubeconfig(t, home)
	}
	first := run()
	parsed, err := kubeconfig.Parse(first, kubeconfig.Rules{})
	must(t, err)
	transport, err := rest.HTTPClientFor(parsed)
	must(t, err)
	defer net.CloseIdleConnectionsFor(transport.Transport)
	client, err := kubernetes.NewForConfigAndClient(parsed, &http.Client{Transport: transport.Transport})
	must(t, err)
	if _, err := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the account may not list secrets: %v", err)
	}
	if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the account may list pods")
	}
	if again := run(); string(again) == string(first) {
		t.Error("the second run put the same token there")
	}
}

func TestDiscoveryPageNetworkPolicyIsBuilt(t *testing.T) {
	blocks, _ := docsPage(t, "discovery.md", "yaml")
	const published = "github.com/countersign-dev/countersign/deploy/kustomize"
	for _, block := range blocks {
		if !strings.Contains(block, published) {
			continue
		}
		policies := objects(t, built(t, strings.ReplaceAll(block, published, "BASE"), nil), "NetworkPolicy")
		if len(policies) != 1 {
			t.Fatalf("there are %d policies", len(policies))
		}
		var p networkingv1.NetworkPolicy
		must(t, json.Unmarshal(policies[0].text, &p))
		var ports []string
		for _, port := range p.Spec.Egress[1].Ports {
			ports = append(ports, port.Port.String())
		}
		if got := strings.Join(ports, " "); got != "443 6443 15012 8443" {
			t.Errorf("it lets the service out to %s", got)
		}
		return
	}
	t.Error("the page has no overlay")
}
