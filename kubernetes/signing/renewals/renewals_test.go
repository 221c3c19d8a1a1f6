package renewals

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra/share"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "countersign-ra-renewals"

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
	f.Remove("configmaps", "ra", name)
	save("of the object before", version, share.ErrConflict)
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

// A namespace that is being deleted makes no object, which is no other replica's doing.
func TestDeletedNamespaceDiffersFromConflict(t *testing.T) {
	f := kubetest.NewFake()
	f.Fail(apierrors.NewNotFound(corev1.Resource("configmaps"), name))
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
