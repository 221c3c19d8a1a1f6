package record_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

var _ ra.Updater = (*record.Store)(nil)

const recordsName = "countersign-ra-records"

// apiServer can have something happen before an update.
type apiServer struct{ *kubetest.Fake }

func newAPIServer() apiServer { return apiServer{kubetest.NewFake()} }

// meanwhile is done once, before the next update.
func (s apiServer) meanwhile(do func()) {
	once := sync.OnceFunc(do)
	s.Before = func(c *kubetest.Call) error {
		if c.Verb == "update" {
			once()
		}
		return nil
	}
}

// put writes past the store, also from within a request.
func (s apiServer) put(key, value string) { s.putIn(recordsName, key, value) }

func (s apiServer) putIn(name, key, value string) {
	data := s.data(name)
	data[key] = value
	s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ra", Name: name}, Data: data})
}

// data is that of a ConfigMap.
func (s apiServer) data(name string) map[string]string {
	if now := kubetest.Get[corev1.ConfigMap](s.Fake, "configmaps", "ra", name); now != nil && now.Data != nil {
		return now.Data
	}
	return map[string]string{}
}

func (s apiServer) store(t *testing.T, held func() error) *record.Store {
	t.Helper()
	store, err := record.NewStore(record.Object{Client: s.Client(), Kind: record.ConfigMap, Namespace: "ra", Name: recordsName}, held)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func loads(t *testing.T, s *record.Store, authority, want string) {
	t.Helper()
	if got, err := s.Load(t.Context(), authority); err != nil || string(got) != want {
		t.Errorf("the record of %s: %s, %v", authority, got, err)
	}
}

func saves(t *testing.T, s *record.Store, authority, text string) {
	t.Helper()
	if err := s.Save(t.Context(), authority, []byte(text)); err != nil {
		t.Errorf("the record of %s: %v", authority, err)
	}
}

func TestRecordsOutliveTheStore(t *testing.T) {
	s := newAPIServer()
	first := s.store(t, nil)
	loads(t, first, "vault", "")
	saves(t, first, "vault", `{"a":1}`)
	saves(t, first, "google", `{"b":1}`)
	saves(t, first, "vault", `{"a":2}`)
	second := s.store(t, nil)
	loads(t, second, "vault", `{"a":2}`)
	loads(t, second, "google", `{"b":1}`)
	loads(t, second, "other", "")
}

func TestSameRecordIsNotWritten(t *testing.T) {
	s := newAPIServer()
	store := s.store(t, nil)
	saves(t, store, "vault", `{"a":1}`)
	before := s.Changes()
	saves(t, store, "vault", `{"a":1}`)
	if s.Changes() != before {
		t.Error("it is written again")
	}
}

func TestRecordWrittenMeanwhileIsNotLost(t *testing.T) {
	s := newAPIServer()
	store := s.store(t, nil)
	saves(t, store, "vault", `{"a":1}`)
	s.meanwhile(func() { s.put("google", `{"b":1}`) })
	saves(t, store, "vault", `{"a":2}`)
	loads(t, store, "vault", `{"a":2}`)
	loads(t, store, "google", `{"b":1}`)
}

func TestAuthoritiesSaveAtOnce(t *testing.T) {
	s := newAPIServer()
	store := s.store(t, nil)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() { saves(t, store, fmt.Sprint("ca", i), `{"a":1}`) })
	}
	wg.Wait()
	for i := range 30 {
		loads(t, store, fmt.Sprint("ca", i), `{"a":1}`)
	}
}

// A leader that was stopped between its read and its write has lost the Lease meanwhile.
func TestStoppedLeaderOverwritesNothing(t *testing.T) {
	lost := errors.New("not held")
	s := newAPIServer()
	held := error(nil)
	store := s.store(t, func() error { return held })
	saves(t, store, "vault", `{"a":1}`)
	s.meanwhile(func() {
		s.put("vault", `{"a":"of the successor"}`)
		held = lost
	})
	if err := store.Save(t.Context(), "vault", []byte(`{"a":2}`)); !errors.Is(err, lost) {
		t.Error(err)
	}
	loads(t, store, "vault", `{"a":"of the successor"}`)
}

func TestMalformedRecordIsReportedAndReplaced(t *testing.T) {
	for what, value := range map[string]string{
		"empty": "", "no JSON": "{", "a list": "[1]", "null": "null", "a text": `"x"`,
		"long": `{"a":"` + strings.Repeat("x", 512<<10) + `"}`,
	} {
		s := newAPIServer()
		s.put("vault", value)
		store := s.store(t, nil)
		_, err := store.Load(t.Context(), "vault")
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), `key "vault" of ConfigMap ra/`+recordsName) || len(err.Error()) > 500 {
			t.Errorf("%s: %v", what, err)
		}
		saves(t, store, "google", `{"b":1}`)
		var found string
		if err := store.Update(t.Context(), "vault", func(record []byte) []byte { found = string(record); return record }); err != nil || found != value {
			t.Errorf("%s: change gets %.100q, %v", what, found, err)
		}
		saves(t, store, "vault", `{"a":1}`)
		loads(t, store, "vault", `{"a":1}`)
	}
}

func TestOddRecordIsNotWritten(t *testing.T) {
	s := newAPIServer()
	store := s.store(t, nil)
	for authority, record := range map[string]string{
		"vault": "{", "google": `{"a":"` + strings.Repeat("x", 512<<10) + `"}`, "a/b": "{}", "": "{}", "..": "{}",
	} {
		if err := store.Save(t.Context(), authority, []byte(record)); err == nil || s.Changes() != 0 {
			t.Errorf("%q: %v", authority, err)
		}
	}
	if _, err := store.Load(t.Context(), "a/b"); err == nil {
		t.Error("an odd recordsName is taken")
	}
}

// The engine reads the record again before it signs.
func TestAbsentAPIServerDiffersFromEmptyRecord(t *testing.T) {
	s := newAPIServer()
	s.put("vault", `{"a":1}`)
	store := s.store(t, nil)
	s.Fail(apierrors.NewServiceUnavailable("away"))
	if got, err := store.Load(t.Context(), "vault"); got != nil || !apierrors.IsServiceUnavailable(err) || ca.ReasonFor(err) == ca.Invalid {
		t.Errorf("%s, %v", got, err)
	}
	s.Fail(nil)
	loads(t, store, "vault", `{"a":1}`)
}

func TestUnreadableRecordsAreNotOverwritten(t *testing.T) {
	s := newAPIServer()
	store := s.store(t, nil)
	s.Fail(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, recordsName, errors.New("no")))
	if err := store.Save(t.Context(), "vault", []byte("{}")); !apierrors.IsForbidden(err) || s.Changes() != 0 {
		t.Error(err)
	}
}

func TestInvalidSettingsOfRecordsAreRefused(t *testing.T) {
	client := kubetest.NewFake().Client()
	for what, cfg := range map[string]record.Object{
		"no client": {Kind: record.ConfigMap, Namespace: "ra", Name: recordsName}, "no kind": {Client: client, Namespace: "ra", Name: recordsName}, "no namespace": {Client: client, Kind: record.ConfigMap, Name: recordsName}, "no name": {Client: client, Kind: record.ConfigMap, Namespace: "ra"},
		"an odd name": {Client: client, Kind: record.ConfigMap, Namespace: "ra", Name: "a/b"},
	} {
		if _, err := record.NewStore(cfg, nil); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// Several engines add to one record, and none of them needs the Lease to read it.
func TestUpdatesOfSeveralAreAllKept(t *testing.T) {
	s := newAPIServer()
	store := s.store(t, nil)
	saves(t, store, "vault", `{"a":"x"}`)
	s.meanwhile(func() { s.put("vault", `{"a":"xy"}`) })
	add := func(record []byte) []byte { return []byte(strings.Replace(string(record), `"}`, `z"}`, 1)) }
	if err := store.Update(t.Context(), "vault", add); err != nil {
		t.Error(err)
	}
	loads(t, store, "vault", `{"a":"xyz"}`)
	before := s.Changes()
	other := s.store(t, func() error { return errors.New("not held") })
	if err := other.Update(t.Context(), "vault", func(record []byte) []byte { return record }); err != nil || s.Changes() != before {
		t.Errorf("it is not read: %v", err)
	}
	if err := other.Update(t.Context(), "google", func([]byte) []byte { return nil }); err != nil || s.Changes() != before {
		t.Errorf("nothing is written as something: %v", err)
	}
	if err := other.Update(t.Context(), "vault", add); err == nil || s.Changes() != before {
		t.Error("it is written without the Lease")
	}
}
