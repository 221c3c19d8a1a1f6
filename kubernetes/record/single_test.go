package record_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/ra/share"
)

const storeName = "countersign-ra-record"

// opens has a constructor for each store of the records that replicas share, by the resource that holds each.
var opens = map[string]func(client kubernetes.Interface, namespace, name string) (share.Store, error){
	"configmaps": func(client kubernetes.Interface, namespace, name string) (share.Store, error) {
		return record.NewSingle(record.Object{Client: client, Kind: record.ConfigMap, Namespace: namespace, Name: name}, record.Renewals)
	},
	"leases": func(client kubernetes.Interface, namespace, name string) (share.Store, error) {
		return record.NewSingle(record.Object{Client: client, Kind: record.Lease, Namespace: namespace, Name: name}, record.Shares)
	},
}

func storeIn(t *testing.T, f *kubetest.Fake, resource string) share.Store {
	t.Helper()
	store, err := opens[resource](f.Client(), "ra", storeName)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// ofEachStore runs a test with each store and its API server.
func ofEachStore(t *testing.T, test func(t *testing.T, resource string, f *kubetest.Fake, store share.Store)) {
	for resource := range opens {
		t.Run(resource, func(t *testing.T) {
			f := kubetest.NewFake()
			test(t, resource, f, storeIn(t, f, resource))
		})
	}
}

func TestRecordIsReplacedOnlyAsItWasRead(t *testing.T) {
	ofEachStore(t, func(t *testing.T, resource string, f *kubetest.Fake, store share.Store) {
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
		f.Remove(resource, "ra", storeName)
		save("of the object before", version, share.ErrConflict)
		if record, version, err = store.Load(t.Context()); err != nil || record != nil || version != "" {
			t.Errorf("%q, %q, %v", record, version, err)
		}
	})
}

// The labels, annotations and keys of others stay: a tool that marks what it deploys, or backs it up,
// would set them again after each write.
func TestWriteKeepsWhatOthersAdded(t *testing.T) {
	ofEachStore(t, func(t *testing.T, resource string, f *kubetest.Fake, store share.Store) {
		meta := metav1.ObjectMeta{Namespace: "ra", Name: storeName, Labels: map[string]string{"team": "mesh"}, Annotations: map[string]string{"note": "theirs"}}
		if resource == "leases" {
			f.Put(&coordinationv1.Lease{ObjectMeta: meta})
		} else {
			f.Put(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"other": "theirs"}})
		}
		_, version, err := store.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Save(t.Context(), []byte("one"), version); err != nil {
			t.Fatal(err)
		}
		if record, _, err := store.Load(t.Context()); err != nil || string(record) != "one" {
			t.Errorf("%q, %v", record, err)
		}
		kept, data := read(t, f, resource)
		if kept.Labels["team"] != "mesh" || kept.Annotations["note"] != "theirs" || resource == "configmaps" && data["other"] != "theirs" {
			t.Errorf("after a write: labels %v, annotations %v, data %v", kept.Labels, kept.Annotations, data)
		}
	})
}

// read returns the metadata of the object of a store, and the data of a ConfigMap.
func read(t *testing.T, f *kubetest.Fake, resource string) (metav1.ObjectMeta, map[string]string) {
	t.Helper()
	if resource == "leases" {
		lease, err := f.Client().CoordinationV1().Leases("ra").Get(t.Context(), storeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return lease.ObjectMeta, nil
	}
	kept, err := f.Client().CoreV1().ConfigMaps("ra").Get(t.Context(), storeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return kept.ObjectMeta, kept.Data
}

func TestUnreachableServerIsNeitherConflictNorEmptyRecord(t *testing.T) {
	ofEachStore(t, func(t *testing.T, _ string, f *kubetest.Fake, store share.Store) {
		f.Fail(apierrors.NewServiceUnavailable("away"))
		if _, _, err := store.Load(t.Context()); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "ra/"+storeName) {
			t.Error(err)
		}
		if err := store.Save(t.Context(), nil, "1"); !apierrors.IsServiceUnavailable(err) || errors.Is(err, share.ErrConflict) {
			t.Error(err)
		}
	})
}

// No object can be created in a namespace that is being deleted; that is not a conflict.
func TestDeletedNamespaceDiffersFromConflict(t *testing.T) {
	ofEachStore(t, func(t *testing.T, resource string, f *kubetest.Fake, store share.Store) {
		f.Fail(apierrors.NewNotFound(schema.GroupResource{Resource: resource}, storeName))
		if err := store.Save(t.Context(), nil, ""); !apierrors.IsNotFound(err) || errors.Is(err, share.ErrConflict) {
			t.Error(err)
		}
		if err := store.Save(t.Context(), nil, "1"); !errors.Is(err, share.ErrConflict) {
			t.Error(err)
		}
	})
}

func TestInvalidSettingsOfAStoreAreRefused(t *testing.T) {
	client := kubetest.NewFake().Client()
	for resource, open := range opens {
		for what, c := range map[string]struct {
			client          kubernetes.Interface
			namespace, name string
		}{
			"no client": {nil, "ra", storeName}, "no namespace": {client, "", storeName}, "no name": {client, "ra", ""}, "an odd name": {client, "ra", "a/b"},
		} {
			if _, err := open(c.client, c.namespace, c.name); err == nil {
				t.Errorf("%s: %s is taken", resource, what)
			}
		}
	}
}

func TestLeaseOfALeaderIsLeftAlone(t *testing.T) {
	f := kubetest.NewFake()
	leader := "somebody"
	f.Put(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ra", Name: storeName}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &leader},
	})
	if _, _, err := storeIn(t, f, "leases").Load(t.Context()); err == nil || !strings.Contains(err.Error(), "elects a leader") {
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
			keeper, err := share.New(share.Config{Store: storeIn(t, f, "leases"), Wants: func() map[string]float64 { return map[string]float64{"ca": 1} }})
			if err != nil {
				t.Fatal(err)
			}
			keepers, ends = append(keepers, keeper), append(ends, background.Run(keeper.Run))
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
		keeper, err := share.New(share.Config{Store: storeIn(t, f, "leases"), Wants: func() map[string]float64 { return map[string]float64{"ca": 1} }})
		if err != nil {
			t.Fatal(err)
		}
		stop := background.Run(keeper.Run)
		time.Sleep(time.Minute)
		f.Remove("leases", "ra", storeName)
		stop()
		if record, version, err := storeIn(t, f, "leases").Load(t.Context()); err != nil || record != nil || version != "" {
			t.Errorf("it left %q, version %q: %v", record, version, err)
		}
	})
}
