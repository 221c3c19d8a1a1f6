package program

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
)

func TestUnknownClusterIsLoggedOnceWhileItIsUnknown(t *testing.T) {
	t.Parallel()
	was := reported{}
	west, north := status.UnknownReference{Setting: "istio.clusters", Cluster: "west"}, status.UnknownReference{Setting: "istio.node_proxies", Cluster: "north"}
	for i, step := range []struct{ now, fresh []status.UnknownReference }{
		{[]status.UnknownReference{west}, []status.UnknownReference{west}},
		{[]status.UnknownReference{west}, nil},
		{[]status.UnknownReference{west, north}, []status.UnknownReference{north}},
		{[]status.UnknownReference{north}, nil},
		{[]status.UnknownReference{west, north}, []status.UnknownReference{west}}, // it came, and went
	} {
		if got := was.fresh(step.now); !slices.Equal(got, step.fresh) {
			t.Errorf("step %d: %v, want %v", i, got, step.fresh)
		}
	}
}

func TestMisspelledClusterOfAMeshIsShownUntilItIsThere(t *testing.T) {
	t.Parallel()
	r, _, _ := newMesh(t, strings.Replace(forMesh, "  node_proxies:", "  clusters: [east, Kubernets]\n  node_proxies: [north/istio-system/ztunnel]\n  # ", 1))
	const misspelled, absent = "setting=istio.clusters cluster=Kubernets", "setting=istio.node_proxies cluster=north"
	r.until(t, "the log names both", func() bool {
		return strings.Contains(r.Log.String(), misspelled) && strings.Contains(r.Log.String(), absent)
	})
	as(t, r.dial(t, r.root(t)), "web-token", "").refused(nil, codes.Unauthenticated)
	_, page := r.page("/")
	for _, want := range []string{"istio.clusters names Kubernets, and no such cluster is known", "istio.node_proxies names north"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	text := read(t, filepath.Join(r.dir, "remotes", "east.yaml"))
	write(t, filepath.Join(r.dir, "remotes", "north.yaml"), text)
	r.until(t, "north is known", func() bool {
		return slices.Equal(r.report(t).Istio.UnknownClusters, []status.UnknownReference{{Setting: "istio.clusters", Cluster: "Kubernets"}})
	})

	path := filepath.Join(r.dir, "c.yaml")
	write(t, path, strings.Replace(read(t, path), "Kubernets", "Kubernetes", 1))
	r.Signal(syscall.SIGHUP)
	r.until(t, "the name is corrected", func() bool { return len(r.report(t).Istio.UnknownClusters) == 0 })
	if err := os.Remove(filepath.Join(r.dir, "remotes", "north.yaml")); err != nil {
		t.Fatal(err)
	}
	r.until(t, "north is told again", func() bool { return strings.Count(r.Log.String(), absent) == 2 })
	if n := strings.Count(r.Log.String(), misspelled); n != 1 {
		t.Errorf("the misspelled cluster is logged %d times", n)
	}
}
