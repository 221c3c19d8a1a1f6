package renewals

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/countersign-dev/countersign/sdk/ra/share"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "countersign-ra-renewals"

var configmaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// apiServer refuses updates of an older version, which client-go's does not.
type apiServer struct {
	*fake.Clientset
	version int
	err     error
}

func newAPIServer() *apiServer {
	s := &apiServer{Clientset: fake.NewClientset()}
	s.PrependReactor("*", "configmaps", func(action kubetesting.Action) (bool, runtime.Object, error) {
		if s.err != nil {
			return true, nil, s.err
		}
		sent := sentBy(action)
		if sent == nil {
			return false, nil, nil
		}
		now, err := s.Tracker().Get(configmaps, action.GetNamespace(), name)
		if err == nil && action.GetVerb() == "update" && now.(*corev1.ConfigMap).ResourceVersion != sent.ResourceVersion {
			return true, nil, apierrors.NewConflict(configmaps.GroupResource(), name, errors.New("modified"))
		}
		s.version++
		sent.ResourceVersion = fmt.Sprint(s.version)
		return false, nil, nil
	})
	return s
}

func sentBy(action kubetesting.Action) *corev1.ConfigMap {
	if with, ok := action.(interface{ GetObject() runtime.Object }); ok {
		return with.GetObject().(*corev1.ConfigMap)
	}
	return nil
}

func (s *apiServer) store(t *testing.T) *Store {
	t.Helper()
	store, err := New(Config{Client: s, Namespace: "ra", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestRecordIsReplacedOnlyAsItWasRead(t *testing.T) {
	s := newAPIServer()
	store := s.store(t)
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
	if err := s.Tracker().Delete(configmaps, "ra", name); err != nil {
		t.Fatal(err)
	}
	save("of the object before", version, share.ErrConflict)
	if record, version, err = store.Load(t.Context()); err != nil || record != nil || version != "" {
		t.Errorf("%q, %q, %v", record, version, err)
	}
}

func TestServerThatCannotTellIsNoConflictAndNoEmptyRecord(t *testing.T) {
	s := newAPIServer()
	s.err = apierrors.NewServiceUnavailable("away")
	store := s.store(t)
	if _, _, err := store.Load(t.Context()); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "ra/"+name) {
		t.Error(err)
	}
	if err := store.Save(t.Context(), nil, "1"); !apierrors.IsServiceUnavailable(err) || errors.Is(err, share.ErrConflict) {
		t.Error(err)
	}
}

// A namespace that is being deleted makes no object, which is no other replica's doing.
func TestNamespaceThatIsGoneIsNoConflict(t *testing.T) {
	s := newAPIServer()
	s.err = apierrors.NewNotFound(configmaps.GroupResource(), name)
	store := s.store(t)
	if err := store.Save(t.Context(), nil, ""); !apierrors.IsNotFound(err) || errors.Is(err, share.ErrConflict) {
		t.Error(err)
	}
	if err := store.Save(t.Context(), nil, "1"); !errors.Is(err, share.ErrConflict) {
		t.Error(err)
	}
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	client := fake.NewClientset()
	for what, cfg := range map[string]Config{
		"no client": {Namespace: "ra", Name: name}, "no namespace": {Client: client, Name: name}, "no name": {Client: client, Namespace: "ra"},
		"an odd name": {Client: client, Namespace: "ra", Name: "a/b"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
