package shares

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra/share"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "countersign-ra-shares"

func storeIn(t *testing.T, f *kubetest.Fake) *Store {
	t.Helper()
	store, err := New(Config{Client: f.Client(), Namespace: "ra", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestRecordIsReplacedOnlyAsItWasRead(t *testing.T) {
	f := kubetest.NewFake()
	store := storeIn(t, f)
	record, version, err := store.Load(t.Context())
	if err != nil || record != nil || version != "" {
		t.Fatalf("nothing is %q, %q, %v", record, version, err)
	}
	save := func(text, version string, want error) {
		t.Helper()
		if err := store.Save(t.Context(), []byte(text), version); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	save("one", "", nil)
	save("another first", "", share.ErrConflict)
	if record, version, err = store.Load(t.Context()); err != nil || string(record) != "one" || version == "" {
		t.Fatalf("%q, %q, %v", record, version, err)
	}
	save("two", version, nil)
	save("late", version, share.ErrConflict)
	if record, version, err = store.Load(t.Context()); err != nil || string(record) != "two" {
		t.Fatalf("%q, %q, %v", record, version, err)
	}
	f.Remove("leases", "ra", name)
	save("of the Lease before", version, share.ErrConflict)
	if record, version, err = store.Load(t.Context()); err != nil || record != nil || version != "" {
		t.Errorf("%q, %q, %v", record, version, err)
	}
}

func TestUnreachableServerIsNeitherConflictNorEmptyRecord(t *testing.T) {
	f := kubetest.NewFake()
	f.Fail(apierrors.NewServiceUnavailable("away"))
	store := storeIn(t, f)
	if _, _, err := store.Load(t.Context()); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "ra/"+name) {
		t.Error(err)
	}
	if err := store.Save(t.Context(), nil, "1"); !apierrors.IsServiceUnavailable(err) || errors.Is(err, share.ErrConflict) {
		t.Error(err)
	}
}

func TestLeaseOfALeaderIsLeftAlone(t *testing.T) {
	f := kubetest.NewFake()
	leader := "somebody"
	f.Put(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ra", Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &leader},
	})
	if _, _, err := storeIn(t, f).Load(t.Context()); err == nil || !strings.Contains(err.Error(), "elects a leader") {
		t.Error(err)
	}
}

// Two replicas have half each, and one that ends gives its half back.
func TestReplicasShareOverTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := kubetest.NewFake()
		var keepers []*share.Keeper
		var ends []func()
		for range 2 {
			keeper, err := share.New(share.Config{Store: storeIn(t, f), Wants: func() map[string]float64 { return map[string]float64{"ca": 1} }})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() { defer close(over); keeper.Run(ctx) }()
			keepers, ends = append(keepers, keeper), append(ends, func() { cancel(); <-over })
		}
		time.Sleep(time.Minute)
		if a, b := keepers[0].Share("ca"), keepers[1].Share("ca"); a < 0.48 || b < 0.48 {
			t.Errorf("they have %v and %v", a, b)
		}
		ends[0]()
		time.Sleep(4 * time.Second)
		if a, b := keepers[0].Share("ca"), keepers[1].Share("ca"); a > 0 || b < 0.96 {
			t.Errorf("one has ended, and they have %v and %v", a, b)
		}
		ends[1]()
	})
}

// A replica that ends after the Lease was deleted, or before its first beat, leaves nothing that stops
// the others.
func TestReplicaThatEndsWithoutALeaseMakesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := kubetest.NewFake()
		keeper, err := share.New(share.Config{Store: storeIn(t, f), Wants: func() map[string]float64 { return map[string]float64{"ca": 1} }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); keeper.Run(ctx) }()
		time.Sleep(time.Minute)
		f.Remove("leases", "ra", name)
		cancel()
		<-over
		if record, version, err := storeIn(t, f).Load(t.Context()); err != nil || record != nil || version != "" {
			t.Errorf("it left %q, version %q: %v", record, version, err)
		}
	})
}

// A namespace that is being deleted makes no Lease, which is no other replica's doing.
func TestDeletedNamespaceDiffersFromConflict(t *testing.T) {
	f := kubetest.NewFake()
	f.Fail(apierrors.NewNotFound(coordinationv1.Resource("leases"), name))
	store := storeIn(t, f)
	if err := store.Save(t.Context(), nil, ""); !apierrors.IsNotFound(err) || errors.Is(err, share.ErrConflict) {
		t.Error(err)
	}
	if err := store.Save(t.Context(), nil, "1"); !errors.Is(err, share.ErrConflict) {
		t.Error(err)
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	client := kubetest.NewFake().Client()
	for what, cfg := range map[string]Config{
		"no client": {Namespace: "ra", Name: name}, "no namespace": {Client: client, Name: name}, "no name": {Client: client, Namespace: "ra"},
		"an odd name": {Client: client, Namespace: "ra", Name: "a/b"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
