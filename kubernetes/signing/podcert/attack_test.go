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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// foreign lets there be any number of pods of a namespace, and a service account for them.
func (c *cluster) foreign(namespace string) {
	made := metav1.NewTime(time.Now().Add(-time.Hour))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "account-uid", CreationTimestamp: made}}
	if err := c.tracker.Add(account); err != nil {
		c.t.Fatal(err)
	}
	c.client.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		return action.GetNamespace() == namespace, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: made},
			Spec:       corev1.PodSpec{ServiceAccountName: "web", NodeName: "node-1"},
		}, nil
	})
}

// Somebody who can make writes of their own statuses fail must not keep others from certificates: by
// requests so large that they hold no chain, or by changing them all the time.
func TestNamespaceWhoseStatusesCannotBeWrittenStopsNoOther(t *testing.T) {
	for name, fault := range map[string]error{
		"too large": apierrors.NewRequestEntityTooLargeError("etcdserver: request is too large"),
		"conflicts": apierrors.NewConflict(requests.GroupResource(), "req", errors.New("changed")),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.foreign("flood")
				c.client.PrependReactor("update", "podcertificaterequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
					return action.GetNamespace() == "flood", nil, fault
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
		c.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
			found, err := c.tracker.Watch(action.GetResource(), action.GetNamespace())
			return true, watch.Filter(found, func(e watch.Event) (watch.Event, bool) {
				r, ok := e.Object.(*request)
				return e, !ok || len(r.Status.Conditions) == 0
			}), err
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

// A write that came too late says nothing of the next certificate.
func TestCertificateThatIsFoundTooOldIsReplaced(t *testing.T) {
	const ahead = 10 * time.Second // the API server's clock
	inCluster(t, func(c *cluster) {
		began := time.Now()
		c.client.PrependReactor("update", "podcertificaterequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
			r := action.(clienttesting.UpdateAction).GetObject().(*request)
			switch {
			case time.Since(r.Status.NotBefore.Time) >= 5*time.Minute-ahead:
				return true, nil, apierrors.NewInvalid(certificates.GroupKind(), r.Name, nil)
			case time.Since(began) < 4*time.Minute:
				return true, nil, errAway
			}
			return false, nil, nil
		})
	}, func(c *cluster) {
		c.create(honest())
		time.Sleep(10 * time.Minute)
		c.want(issuedState)
	})
}

// office is an issuer that counts what it is asked for.
type office struct {
	asked atomic.Int64
	issue func(ctx context.Context) (ra.Certificate, error)
}

func (o *office) Issue(ctx context.Context, _ ra.Request) (ra.Certificate, error) {
	o.asked.Add(1)
	return o.issue(ctx)
}

// Another certificate of that authority would be as large.
func TestHugeChainCostsOneCertificate(t *testing.T) {
	huge := &office{issue: func(context.Context) (ra.Certificate, error) {
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
	late := &office{issue: func(ctx context.Context) (ra.Certificate, error) {
		<-ctx.Done()
		return ra.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}, nil
	}}
	inCluster(t, func(c *cluster) { c.conf.Issuer = late }, func(c *cluster) {
		var writes atomic.Int64
		c.client.PrependReactor("update", "podcertificaterequests", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			return true, nil, errAway
		})
		for n := range 50 {
			r := honest()
			r.Name, r.UID = fmt.Sprintf("req-%d", n), types.UID(fmt.Sprint(n))
			c.create(r)
		}
		c.stop()
		if n := writes.Load(); n > 0 {
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
	var lookups atomic.Int64
	inCluster(t, func(c *cluster) {
		c.crowd()
		c.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			lookups.Add(1)
			return false, nil, nil
		})
		c.fail("update", "podcertificaterequests", errAway)
		c.ra.Authorities[0].Limits = ra.Limits{Rate: 7, Burst: 1}
		for n := range pods {
			c.make(of(n, time.Now(), time.Now()))
		}
	}, func(c *cluster) {
		time.Sleep(time.Minute)
		before := lookups.Load()
		time.Sleep(time.Minute)
		if n := lookups.Load() - before; n > pods/10 {
			t.Errorf("%d lookups in a minute for %d pods", n, pods)
		}
	})
}
