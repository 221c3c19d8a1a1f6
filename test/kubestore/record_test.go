package kubestore_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand/kubestore"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func recordsIn(t *testing.T, fake *kubetest.Fake) []corev1.Secret {
	t.Helper()
	list, err := fake.Client().CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "countersign.dev/kind=certificate"})
	must(t, err)
	return list.Items
}

// stored returns the only record in the API server.
func stored(t *testing.T, fake *kubetest.Fake) *corev1.Secret {
	t.Helper()
	all := recordsIn(t, fake)
	if len(all) != 1 {
		t.Fatalf("there are %d records", len(all))
	}
	return &all[0]
}

func TestRecordIsASecretOfItsOwnType(t *testing.T) {
	fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
	m := newMachine(t, fake, nil)
	e, r := certificate(web, authority, time.Now().Add(24*time.Hour))
	must(t, m.Store.Store(t.Context(), e, r))
	got := stored(t, fake)
	if got.Type != kubestore.Type || got.Annotations["countersign.dev/name"] != web || got.Labels["app.kubernetes.io/managed-by"] != "countersign" || len(got.Name) <= 63 {
		t.Errorf("%+v", got)
	}
	if again, err := m.Load(t.Context(), web); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("%+v, %v", again, err)
	}
	other := newMachine(t, fake, nil)
	index, err := other.Index(t.Context())
	if err != nil || len(index) != 1 || !index[0].Ends.Equal(e.Ends) || !index[0].Renew.Equal(e.Renew) || index[0].Name != web {
		t.Errorf("%v, %v", index, err)
	}
	e, r = certificate(web, authority, time.Now().Add(48*time.Hour))
	must(t, other.Store.Store(t.Context(), e, r))
	if again, err := m.Load(t.Context(), web); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("%+v, %v after a renewal", again, err)
	}
	must(t, m.Delete(t.Context(), web))
	must(t, m.Delete(t.Context(), web))
	if none, err := other.Load(t.Context(), web); err != nil || len(none.Content) != 0 {
		t.Errorf("%+v, %v after a deletion", none, err)
	}
}

func TestOrderAloneHasNoEnd(t *testing.T) {
	fake := kubetest.NewFake()
	m := newMachine(t, fake, nil)
	must(t, m.Store.Store(t.Context(), secret.Entry{Name: web}, secret.Record{Authority: "acme", Content: []byte("{}")}))
	if index, err := m.Index(t.Context()); err != nil || !slices.Equal(index, []secret.Entry{{Name: web}}) {
		t.Errorf("%v, %v", index, err)
	}
}

func TestOthersChangesAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
		store := func(name string, days int) {
			t.Helper()
			e, r := certificate(name, authority, time.Now().Add(time.Duration(days)*24*time.Hour))
			must(t, a.Store.Store(t.Context(), e, r))
		}
		expect := func(when string, want ...string) {
			t.Helper()
			if got := b.news(); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		store("a.test", 1)
		index, err := b.Index(t.Context())
		if err != nil || len(index) != 1 {
			t.Fatal(index, err)
		}
		store("b.test", 1)
		b.follow(t)
		expect("since the index", "+b.test")
		store("a.test", 2)
		must(t, a.Delete(t.Context(), "b.test"))
		expect("live", "+a.test", "-b.test")
		fake.Cut()
		time.Sleep(time.Minute)
		expect("after a cut")
		b.away.Store(true)
		fake.Cut()
		store("c.test", 1)
		must(t, a.Delete(t.Context(), "a.test"))
		time.Sleep(time.Minute)
		expect("while it is away")
		b.away.Store(false)
		time.Sleep(2 * time.Minute)
		expect("back", "+c.test", "-a.test")
	})
}

// The API server has compacted what a watch goes on from, and the list differs from what was seen.
func TestListAnewReportsWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
		for _, name := range []string{"a.test", "b.test"} {
			e, r := certificate(name, authority, time.Now().Add(24*time.Hour))
			must(t, a.Store.Store(t.Context(), e, r))
		}
		b.follow(t)
		if got := b.news(); len(got) != 2 {
			t.Errorf("without an index: %v", got)
		}
		gone := fake.FailOn("watch", "secrets", apierrors.NewResourceExpired("too old"))
		fake.Cut()
		must(t, a.Delete(t.Context(), "a.test"))
		time.Sleep(2 * time.Minute)
		if got := b.news(); !slices.Equal(got, []string{"-a.test"}) {
			t.Errorf("%v", got)
		}
		gone()
		time.Sleep(2 * time.Minute)
		must(t, a.Delete(t.Context(), "b.test"))
		if got := b.news(); !slices.Equal(got, []string{"-b.test"}) {
			t.Errorf("%v after that", got)
		}
	})
}

// A certificate whose record cannot be read is not ordered again.
func TestFailedCallIsUnavailable(t *testing.T) {
	of := schema.GroupResource{Resource: "secrets"}
	for name, fault := range map[string]error{
		"no right": apierrors.NewForbidden(of, "x", errors.New("no")), "no credential": apierrors.NewUnauthorized("who"), "away": errAway,
		"too many": apierrors.NewTooManyRequests("slow", 7), "invalid": apierrors.NewBadRequest("what"), "broken": apierrors.NewInternalError(errAway),
	} {
		fake := kubetest.NewFake()
		m := newMachine(t, fake, nil)
		fake.Fail(fault)
		_, loading := m.Load(t.Context(), web)
		_, listing := m.Index(t.Context())
		_, claiming := m.Claim(t.Context(), web)
		e, r := certificate(web, catest.NewCA(catest.Options{}), time.Now())
		for call, err := range map[string]error{
			"load": loading, "index": listing, "claim": claiming, "store": m.Store.Store(t.Context(), e, r), "delete": m.Delete(t.Context(), web),
		} {
			if ca.ReasonFor(err) != ca.Unavailable || errors.Is(err, secret.ErrClaimed) {
				t.Errorf("%s, %s: %v", name, call, err)
			}
			if name == "too many" && ca.RetryAfter(err) != 7*time.Second {
				t.Errorf("%s: again after %s", call, ca.RetryAfter(err))
			}
		}
	}
}

// The caller of Index gives up and follows the changes while the list is still on its way.
func TestChangesAfterLateIndexReportAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		a, b := newMachine(t, fake, nil), newMachine(t, fake, nil)
		e, r := certificate(web, authority, time.Now().Add(24*time.Hour))
		must(t, a.Store.Store(t.Context(), e, r))
		fake.After = func(c *kubetest.Call) {
			if c.Verb == "list" && c.Resource == "secrets" {
				fake.Set(func() { fake.After = nil })
				time.Sleep(8 * time.Second)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		go func() {
			if _, err := b.Index(ctx); ca.ReasonFor(err) != ca.Deadline {
				t.Errorf("the index: %v", err)
			}
		}()
		time.Sleep(5 * time.Second)
		b.follow(t)
		time.Sleep(time.Minute)
		if got := b.news(); !slices.Equal(got, []string{"+" + web}) {
			t.Errorf("%v", got)
		}
		must(t, a.Delete(t.Context(), web))
		if got := b.news(); !slices.Equal(got, []string{"-" + web}) {
			t.Errorf("%v after the deletion", got)
		}
	})
}

func TestForeignObjectIsLeftAsItIs(t *testing.T) {
	fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
	m := newMachine(t, fake, nil)
	e, r := certificate(web, authority, time.Now().Add(time.Hour))
	must(t, m.Store.Store(t.Context(), e, r))
	for name, change := range map[string]func(*corev1.Secret){
		"another type":  func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"another label": func(s *corev1.Secret) { s.Labels["app.kubernetes.io/managed-by"] = "helm" },
		"another name":  func(s *corev1.Secret) { s.Annotations["countersign.dev/name"] = "b.test" },
	} {
		list, err := fake.Client().CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		foreign := list.Items[0].DeepCopy()
		foreign.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
		foreign.Namespace = namespace
		change(foreign)
		fake.Put(foreign)
		before, changes := m.Status().Foreign, fake.Changes()
		if got, err := m.Load(t.Context(), web); err == nil || ca.ReasonFor(err) == ca.Unavailable || len(got.Content) != 0 {
			t.Errorf("%s: loaded %+v, %v", name, got, err)
		}
		if err := m.Store.Store(t.Context(), e, r); err == nil {
			t.Errorf("%s: it was replaced", name)
		}
		must(t, m.Delete(t.Context(), web))
		if fake.Changes() != changes || m.Status().Foreign < before+3 {
			t.Errorf("%s: %d changes, %+v", name, fake.Changes()-changes, m.Status())
		}
		back := list.Items[0].DeepCopy()
		back.TypeMeta = foreign.TypeMeta
		back.Namespace = namespace
		fake.Put(back)
	}
	// An index does not report what its annotation does not belong to.
	moved := stored(t, fake)
	moved.TypeMeta, moved.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, namespace
	moved.Annotations["countersign.dev/name"] = "victim.test"
	fake.Put(moved)
	if index, err := m.Index(t.Context()); err != nil || len(index) != 0 || m.Status().Damaged != 1 {
		t.Errorf("%v, %v, %+v", index, err, m.Status())
	}
}

func TestConfigNeedsNamespaceAndServer(t *testing.T) {
	for _, cfg := range []kubestore.Config{{}, {Namespace: "a/b"}, {Namespace: "a"}} {
		if _, err := kubestore.Open(cfg); ca.ReasonFor(err) != ca.Invalid {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
