package podcert_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// foreign serves any number of pods of a namespace, and a service account for them.
func (c *cluster) foreign(namespace string) {
	made := metav1.NewTime(time.Now().Add(-time.Hour))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "account-uid", CreationTimestamp: made}}
	c.api.Put(account)
	c.anyPod(namespace, made)
}

// An owner who can make writes of their own statuses fail must not keep others from certificates: by
// requests so large that they hold no chain, or by changing them all the time.
func TestNamespaceWhoseStatusesCannotBeWrittenStopsNoOther(t *testing.T) {
	for name, fault := range map[string]error{
		"too large": apierrors.NewRequestEntityTooLargeError("etcdserver: request is too large"),
		"conflicts": apierrors.NewConflict(schema.GroupResource{Resource: requests}, "req", errors.New("changed")),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.foreign("flood")
				c.api.Also(func(call *kubetest.Call) error {
					if call.Verb == "update" && call.Namespace == "flood" {
						return fault
					}
					return nil
				})
			}, func(c *cluster) {
				for n := range 50 {
					r := of(n, time.Now(), time.Now())
					r.Namespace = "flood"
					c.create(r)
				}
				for n := range 8 { // a holder has ten at once
					r := honest()
					r.Name, r.UID = fmt.Sprintf("late-%d", n), types.UID(fmt.Sprint(n))
					time.Sleep(7 * time.Second)
					c.create(r)
					synctest.Wait()
					if got := c.state(r.Name); got != issuedState {
						t.Fatalf("request %d of another namespace is %q\n%s", n, got, c.log.String())
					}
				}
			})
		})
	}
}

// The informer's word about a request that has its certificate may come late, or not at all.
func TestLateInformerCostsNoSecondCertificate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.api.Also(func(call *kubetest.Call) error {
			call.Hides = func(o kubetest.Object) bool { return o.At("status", "conditions") != nil }
			return nil
		})
	}, func(c *cluster) {
		c.create(honest()) // the backdating is known now
		c.want(issuedState)
		c.ca.Always(catest.Fault{Delay: 10 * time.Second})
		r := honest()
		r.Name, r.UID = "req-2", "2"
		c.create(r)
		r = c.get("req-2")
		r.Annotations = map[string]string{"changed": "meanwhile"}
		c.update(r)
		time.Sleep(time.Minute)
		if n := len(c.audit.Lines(c.t, "issued")); n != 2 {
			t.Errorf("%d certificates for 2 requests\n%s", n, c.log.String())
		}
	})
}

// A write that came too late does not affect the next certificate.
func TestCertificateThatIsFoundTooOldIsReplaced(t *testing.T) {
	const ahead = 10 * time.Second // the API server's clock
	inCluster(t, func(c *cluster) {
		began := time.Now()
		c.api.Also(func(call *kubetest.Call) error {
			if call.Verb != "update" {
				return nil
			}
			r := kubetest.As[request](call.Object)
			switch {
			case time.Since(r.Status.NotBefore.Time) >= 5*time.Minute-ahead:
				return apierrors.NewInvalid(schema.GroupKind{Kind: "PodCertificateRequest"}, r.Name, nil)
			case time.Since(began) < 4*time.Minute:
				return errAway
			}
			return nil
		})
	}, func(c *cluster) {
		c.create(honest())
		time.Sleep(10 * time.Minute)
		c.want(issuedState)
	})
}

// issuer is an issuer that counts what it is asked for.
type issuer struct {
	ra.Issuer
	asked atomic.Int64
	issue func(ctx context.Context) (ra.Certificate, error)
}

func (o *issuer) Issue(ctx context.Context, _ *ra.Order) (ra.Certificate, error) {
	o.asked.Add(1)
	return o.issue(ctx)
}

// Another certificate of that authority would be as large.
func TestHugeChainCostsOneCertificate(t *testing.T) {
	huge := &issuer{issue: func(context.Context) (ra.Certificate, error) {
		return ra.Certificate{Chain: make([]byte, 100<<10+1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}, nil
	}}
	inCluster(t, func(c *cluster) { c.conf.Issuer = huge }, func(c *cluster) {
		c.create(honest())
		time.Sleep(15 * time.Minute)
		c.want(pending)
		if n := huge.asked.Load(); n != 1 {
			t.Errorf("asked for %d certificates", n)
		}
	})
}

// The next leader may be at work already.
func TestNoWriteBeginsAfterTheTerm(t *testing.T) {
	late := &issuer{issue: func(ctx context.Context) (ra.Certificate, error) {
		<-ctx.Done()
		return ra.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}, nil
	}}
	inCluster(t, func(c *cluster) { c.conf.Issuer = late }, func(c *cluster) {
		c.api.FailOn("update", requests, errAway)
		for n := range 50 {
			r := honest()
			r.Name, r.UID = fmt.Sprintf("req-%d", n), types.UID(fmt.Sprint(n))
			c.create(r)
		}
		c.stop()
		if n := c.api.Called("update", requests); n > 0 {
			t.Errorf("%d writes began after the end", n)
		}
	})
}

// Kubernetes deletes a request after 15 minutes, but one with a finalizer stays. Work for those
// would have no end.
func TestRequestThatIsBeingDeletedIsLeftAlone(t *testing.T) {
	inCluster(t, func(c *cluster) { c.ca.Always(catest.Fault{Err: ca.ErrUnavailable}) }, func(c *cluster) {
		r := honest()
		r.Finalizers = []string{"example.com/forever"}
		c.create(r)
		time.Sleep(15 * time.Minute)
		r = c.get("req-1")
		r.DeletionTimestamp = new(metav1.NewTime(time.Now()))
		c.update(r)
		c.ca.Always(catest.Fault{})
		time.Sleep(time.Hour)
		c.want(pending)
	})
}

// An API server that takes no writes has trouble enough.
func TestThoseWhoWaitForWritesAskTheAPIServerNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	const pods = 1000
	inCluster(t, func(c *cluster) {
		c.crowd()
		c.api.FailOn("update", requests, errAway)
		c.ra.Authorities[0].Limits = ra.Limits{Rate: 7, Burst: 1}
		for n := range pods {
			c.make(of(n, time.Now(), time.Now()))
		}
	}, func(c *cluster) {
		time.Sleep(time.Minute)
		before := c.api.Called("get", "pods")
		time.Sleep(time.Minute)
		if n := c.api.Called("get", "pods") - before; n > pods/10 {
			t.Errorf("%d lookups in a minute for %d pods", n, pods)
		}
	})
}
