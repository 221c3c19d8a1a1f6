//go:build e2e && linux

package real_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

var page = flag.String("page", "", "write the figures into this page, between its marks")

// BenchmarkFigures measures the program in front of the provider file, whatever -benchtime says:
// the API server and etcd are on the same cores, and there are no kubelets. (`make bench NAME=kubernetes`)
func BenchmarkFigures(b *testing.B) {
	measure := func() error {
		newBench(b).measure()
		return nil
	}
	if *page == "" {
		must(b, measure())
		return
	}
	must(b, figures.Write(*page, "make bench NAME=kubernetes", measure))
}

const (
	oneByOne = 200
	atOnce   = 1000
	inAll    = 5000 // pods of the cluster
	makers   = 16   // that create objects at the same time
	idleFor  = 30 * time.Second
)

// bench is a deployment with one replica, and what its requests come to.
type bench struct {
	*deployment
	replica *replica
	kubelet kubernetes.Interface
	pods    int

	mu      sync.Mutex
	issued  map[types.UID]time.Time
	changed chan struct{} // holds one notice
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	b := &bench{deployment: deploy(tb, kubetest.Start(tb, kubetest.Options{Nodes: true})), issued: map[types.UID]time.Time{}, changed: make(chan struct{}, 1)}
	b.ServiceAccount("shop", "web")
	b.Node("one")
	b.kubelet = b.ClientFor(b.NodeUser("one"))
	b.lead()
	b.warmUp()
	b.watch()
	return b
}

func (b *bench) lead() {
	b.t.Helper()
	b.replica = b.start(shipped)
	b.replica.awaitLeading()
}

// watch notes when each request is issued.
func (b *bench) watch() {
	b.t.Helper()
	w, err := b.Client().CertificatesV1().PodCertificateRequests("shop").Watch(b.t.Context(), metav1.ListOptions{})
	must(b.t, err)
	inBackground(b.t, func(ctx context.Context) {
		defer w.Stop()
		for {
			select {
			case e := <-w.ResultChan():
				b.take(e)
			case <-ctx.Done():
				return
			}
		}
	})
}

func (b *bench) take(e watch.Event) {
	r, ok := e.Object.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if kind, _ := outcome(r); kind == issued && b.issued[r.UID].IsZero() {
		b.issued[r.UID] = time.Now()
		select {
		case b.changed <- struct{}{}:
		default:
		}
	}
}

// await returns when these requests have certificates, with the time of the last.
func (b *bench) await(requests ...*certificatesv1.PodCertificateRequest) (last time.Time) {
	b.t.Helper()
	deadline := time.After(2 * kubetest.Patience)
	for {
		if last, all := b.all(requests); all {
			return last
		}
		select {
		case <-b.changed:
		case <-deadline:
			b.t.Fatal("a request is pending still")
		}
	}
}

func (b *bench) all(requests []*certificatesv1.PodCertificateRequest) (last time.Time, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range requests {
		at, ok := b.issued[r.UID]
		if !ok {
			return last, false
		}
		if at.After(last) {
			last = at
		}
	}
	return last, true
}

// parallel calls f for 0 to n-1.
func (s *site) parallel(n int, f func(i int) error) {
	s.t.Helper()
	var making sync.WaitGroup
	errs := make([]error, makers)
	for m := range makers {
		making.Go(func() {
			for i := m; i < n && errs[m] == nil; i += makers {
				errs[m] = f(i)
			}
		})
	}
	making.Wait()
	must(s.t, errors.Join(errs...))
}

// addPods creates more pods.
func (b *bench) addPods(n int) []*corev1.Pod {
	b.t.Helper()
	all, first := make([]*corev1.Pod, n), b.pods
	b.parallel(n, func(i int) (err error) {
		pod := kubetest.CertificatePod("shop", fmt.Sprintf("web-%d", first+i), "web", "one", signer)
		all[i], err = b.Client().CoreV1().Pods("shop").Create(b.t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	b.pods += n
	return all
}

func (b *bench) measure() {
	b.t.Helper()
	fmt.Printf("| countersign-ra with the provider file, API server and etcd on the same cores | measured |\n|---|---|\n")
	median, p99 := b.oneByOne()
	row("from a request to `Issued`, one at a time: median (p99)", "%.1f ms (%.1f ms)", ms(median), ms(p99))
	created, took, cpu := b.atOnce()
	row(fmt.Sprintf("%d requests at once, created within %.1f s: from the first to the last `Issued`", atOnce, created.Seconds()), "%.1f s", took.Seconds())
	row("… the program's CPU for each", "%.1f ms", ms(cpu)/atOnce)
	kib, share := b.idle()
	row(fmt.Sprintf("idle in a cluster of %d pods: resident memory", inAll), "%.1f MiB", kib/1024)
	row("… CPU", "%.2f %% of a core", share*100)
}

func row(figure, format string, values ...any) {
	fmt.Printf("| %s | "+format+" |\n", append([]any{figure}, values...)...)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (b *bench) oneByOne() (median, p99 time.Duration) {
	b.t.Helper()
	var took []time.Duration
	for _, pod := range b.addPods(oneByOne) {
		request := b.CertificateRequest(pod, signer)
		begin := time.Now()
		made, err := b.kubelet.CertificatesV1().PodCertificateRequests("shop").Create(b.t.Context(), request, metav1.CreateOptions{})
		must(b.t, err)
		took = append(took, b.await(made).Sub(begin))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

func (b *bench) atOnce() (created, all, cpu time.Duration) {
	b.t.Helper()
	requests := make([]*certificatesv1.PodCertificateRequest, atOnce)
	for i, pod := range b.addPods(atOnce) {
		requests[i] = b.CertificateRequest(pod, signer)
	}
	before := b.cpu()
	begin := time.Now()
	b.parallel(atOnce, func(i int) (err error) {
		requests[i], err = b.kubelet.CertificatesV1().PodCertificateRequests("shop").Create(b.t.Context(), requests[i], metav1.CreateOptions{})
		return err
	})
	created = time.Since(begin)
	all = b.await(requests...).Sub(begin)
	return created, all, b.cpu() - before
}

func (b *bench) cpu() time.Duration {
	b.t.Helper()
	used, _, err := figures.Usage(b.replica.PID())
	must(b.t, err)
	return used
}

// idle measures a program that has just begun to lead.
func (b *bench) idle() (kib, share float64) {
	b.t.Helper()
	b.addPods(inAll - b.pods)
	b.replica.Stop(syscall.SIGTERM)
	b.lead()
	time.Sleep(idleFor / 3)
	before := b.cpu()
	time.Sleep(idleFor)
	used, kib, err := figures.Usage(b.replica.PID())
	must(b.t, err)
	return kib, (used - before).Seconds() / idleFor.Seconds()
}
