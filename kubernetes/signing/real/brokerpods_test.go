//go:build e2e

package real_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	api "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/broker/pods"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/token"
)

// The Broker API's references to pods, with the rights of the chart, through deletions, a successor of
// the same name, and a restart of the API server.
func TestRealPodsOfBrokersAreFollowed(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	user := c.ServiceAccount("agents", "node")
	c.Bind("", user, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}})
	c.ServiceAccount("shop", "web")
	p := followPods(t, c)
	web, other := createPod(t, c, "web-0", "one"), createPod(t, c, "web-1", "two")
	ended := make(chan error, 1)
	resolve := func(name, uid string) (broker.Workload, error) {
		in := &api.KubernetesObjectReference{Type: &api.KubernetesObjectType{Plural: "pods", Group: "core"}, Uid: uid}
		if name != "" {
			in.Key = &api.KubernetesObjectKey{Namespace: "shop", Name: name}
		}
		packed, err := anypb.New(in)
		must(t, err)
		return p.Resolve(t.Context(), packed, func(why error) {
			select {
			case ended <- why:
			default: // each reference ends, and the first one is looked at
			}
		})
	}
	for _, reference := range [][2]string{{"web-0", ""}, {"", string(web.UID)}} {
		w, err := resolve(reference[0], reference[1])
		must(t, err)
		if w.SPIFFEID != "spiffe://example.org/ns/shop/sa/web" {
			t.Errorf("%v is %s", reference, w.SPIFFEID)
		}
		w.Release()
	}
	if _, err := resolve("web-0", string(other.UID)); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("another UID: %v", err)
	}
	if _, err := resolve("web-1", ""); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("another node's pod: %v", err)
	}

	held, err := resolve("web-0", string(web.UID))
	must(t, err)
	c.Stop()
	kubetest.Await(t, "the outage is not noticed", func(context.Context) (bool, error) {
		_, err := resolve("web-0", "")
		return err != nil && ca.ReasonFor(err) == ca.Unavailable, nil
	})
	if held.Check() != nil || len(ended) != 0 {
		t.Error("an outage of the API server ended a workload")
	}
	c.Resume()
	kubetest.Await(t, "the API server is not followed again", func(context.Context) (bool, error) {
		_, err := resolve("web-0", "")
		return err == nil, nil
	})
	must(t, c.Client().CoreV1().Pods("shop").Delete(t.Context(), "web-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	select {
	case why := <-ended:
		if grpcstatus.Code(why) != codes.NotFound || grpcstatus.Code(held.Check()) != codes.NotFound {
			t.Errorf("it ended with %v", why)
		}
	case <-time.After(time.Minute):
		t.Fatal("the deletion was not noticed")
	}
	next := createPod(t, c, "web-0", "one")
	if _, err := resolve("web-0", string(next.UID)); err != nil {
		t.Errorf("its successor: %v", err)
	}
	if _, err := resolve("web-0", string(web.UID)); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("the deleted pod: %v", err)
	}
}

// followPods follows the pods of the node "one" until the test ends.
func followPods(t *testing.T, c *kubetest.Cluster) *pods.Pods {
	t.Helper()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	must(t, os.WriteFile(roots, c.Config().CAData, 0o600))
	client, err := kubeapi.New(kubeapi.Config{URL: c.Config().Host, RootFile: roots, Token: token.Static{Value: ca.Token(c.Token("agents", "node"))}})
	must(t, err)
	p, err := pods.New(pods.Config{Client: client, Node: "one", Log: slog.New(slog.DiscardHandler), Identify: func(p pods.Pod) (string, error) {
		return "spiffe://example.org/ns/" + p.Namespace + "/sa/" + p.ServiceAccount, nil
	}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; client.Close() })
	return p
}

// createPod makes a pod that a node has already.
func createPod(t *testing.T, c *kubetest.Cluster, name, node string) *corev1.Pod {
	t.Helper()
	return c.CreatePod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: "web", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	})
}
