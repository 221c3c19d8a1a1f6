package livepods_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/livepods"
	"github.com/countersign-dev/countersign/ra/istioca"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = istioca.Account{Cluster: "home", Namespace: "shop", ServiceAccount: "web"}

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.ServiceAccountName, p.Spec.NodeName, p.Status.Phase = "web", "n1", corev1.PodRunning
	if change != nil {
		change(p)
	}
	return p
}

// of returns the pods of one cluster, "home", and its API server.
func of(pods ...*corev1.Pod) (*livepods.Pods, *kubetest.Fake) {
	server := kubetest.NewFake()
	for _, p := range pods {
		server.Put(p)
	}
	client := server.Client()
	return livepods.New(func(cluster string) (kubernetes.Interface, bool) { return client, cluster == "home" }), server
}

// wrong are pods that are not live pods of web on n1, by what is wrong with them.
var wrong = map[string]func(*corev1.Pod){
	"it has succeeded":                     func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
	"it has failed":                        func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	"it is bound to no node":               func(p *corev1.Pod) { p.Spec.NodeName = "" },
	"it runs as another service account":   func(p *corev1.Pod) { p.Spec.ServiceAccountName = "api" },
	"it names no service account (mirror)": func(p *corev1.Pod) { p.Spec.ServiceAccountName = "" },
	"it is in another namespace":           func(p *corev1.Pod) { p.Namespace = "bank" },
}

func TestPodIsAliveOnlyByNameUIDAndServiceAccount(t *testing.T) {
	pods, _ := of(pod("web-0", nil))
	if node, err := pods.Alive(t.Context(), istioca.Pod{Account: web, Name: "web-0", UID: "uid-web-0"}); err != nil || node != "n1" {
		t.Errorf("got %q, %v", node, err)
	}
	for _, bad := range []istioca.Pod{
		{Account: web, Name: "web-0", UID: "another"}, {Account: web, Name: "web-0"}, {Account: web, UID: "uid-web-0"},
		{Account: web, Name: "web-1", UID: "uid-web-0"},
		{Account: istioca.Account{Cluster: "home", Namespace: "shop", ServiceAccount: "api"}, Name: "web-0", UID: "uid-web-0"},
	} {
		if node, err := pods.Alive(t.Context(), bad); !errors.Is(err, istioca.ErrNoPod) || node != "" {
			t.Errorf("%+v: got %q, %v", bad, node, err)
		}
	}
	for name, change := range wrong {
		pods, _ := of(pod("web-0", change))
		if _, err := pods.Alive(t.Context(), istioca.Pod{Account: web, Name: "web-0", UID: "uid-web-0"}); !errors.Is(err, istioca.ErrNoPod) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServiceAccountRunsOnlyWhereItHasALivePod(t *testing.T) {
	pods, server := of(pod("web-0", nil))
	if err := pods.Runs(t.Context(), web, "n1"); err != nil {
		t.Error(err)
	}
	for _, node := range []string{"n2", ""} {
		if err := pods.Runs(t.Context(), web, node); !errors.Is(err, istioca.ErrNoPod) {
			t.Errorf("on %q: %v", node, err)
		}
	}
	for name, change := range wrong {
		pods, _ := of(pod("web-0", change)) // whose API server ignores what it is asked to choose
		if err := pods.Runs(t.Context(), web, "n1"); !errors.Is(err, istioca.ErrNoPod) {
			t.Errorf("%s: %v", name, err)
		}
	}
	nobody := web
	nobody.ServiceAccount = ""
	mirror, _ := of(pod("web-0", wrong["it names no service account (mirror)"]))
	if err := mirror.Runs(t.Context(), nobody, "n1"); !errors.Is(err, istioca.ErrNoPod) {
		t.Errorf("no service account: %v", err)
	}
	server.Remove("pods", "shop", "web-0")
	if err := pods.Runs(t.Context(), web, "n1"); !errors.Is(err, istioca.ErrNoPod) {
		t.Errorf("after it was deleted: %v", err)
	}
}

func TestUnreachableClusterDecidesNothing(t *testing.T) {
	for name, answer := range map[string]error{
		"forbidden": apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no right")),
		"away":      errors.New("connection refused"),
		"throttled": apierrors.NewTooManyRequests("slow down", 1),
	} {
		pods, server := of(pod("web-0", nil))
		server.Fail(answer)
		check(t, name, pods, web)
	}
	pods, _ := of()
	check(t, "not connected", pods, istioca.Account{Cluster: "west", Namespace: "shop", ServiceAccount: "web"})
}

func check(t *testing.T, name string, pods *livepods.Pods, account istioca.Account) {
	t.Helper()
	_, alive := pods.Alive(t.Context(), istioca.Pod{Account: account, Name: "web-0", UID: "uid-web-0"})
	runs := pods.Runs(t.Context(), account, "n1")
	for _, err := range []error{alive, runs} {
		if err == nil || errors.Is(err, istioca.ErrNoPod) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMorePodsThanOnePageDecideNothing(t *testing.T) {
	pods, server := of()
	server.Before = func(c *kubetest.Call) error {
		c.Reply = &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}}
		return nil
	}
	if err := pods.Runs(t.Context(), web, "n1"); err == nil || errors.Is(err, istioca.ErrNoPod) {
		t.Error(err)
	}
}

func TestClusterThatHangsDelaysItsOwnCallersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, home := kubetest.NewFake(), kubetest.NewFake()
		hung.Hang()
		home.Put(pod("web-0", nil))
		servers := map[string]kubernetes.Interface{"west": hung.Client(), "home": home.Client()}
		pods := livepods.New(func(cluster string) (kubernetes.Interface, bool) { return servers[cluster], true })
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				_ = pods.Runs(ctx, istioca.Account{Cluster: "west", Namespace: "shop", ServiceAccount: "web"}, "n1")
			})
		}
		synctest.Wait()
		began := time.Now()
		if err := pods.Runs(t.Context(), web, "n1"); err != nil || time.Since(began) > 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		cancel()
		callers.Wait()
	})
}
