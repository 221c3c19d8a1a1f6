package record_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/ra/share"
)

const settle = 10 * time.Minute

// numberOf is a replica's.
func numberOf(t *testing.T, f *kubetest.Fake) *record.BundleNumber {
	t.Helper()
	store, err := record.NewSingle(record.Object{Client: f.Client(), Kind: record.ConfigMap, Namespace: "ra", Name: recordsName}, record.BundleNumberKey)
	if err != nil {
		t.Fatal(err)
	}
	return record.NewBundleNumber(store, settle)
}

// numbers asserts the number of a content.
func numbers(t *testing.T, n *record.BundleNumber, digest string, least, want uint64) {
	t.Helper()
	if got, err := n.Number(t.Context(), digest, least); got != want || err != nil {
		t.Errorf("%s has the number %d (%v), want %d", digest, got, err, want)
	}
}

func outdated(t *testing.T, n *record.BundleNumber, digest string) {
	t.Helper()
	if got, err := n.Number(t.Context(), digest, 1); !errors.Is(err, record.ErrOutdated) {
		t.Errorf("%s has the number %d (%v), want ErrOutdated", digest, got, err)
	}
}

func TestReplicasGiveContentOneNumber(t *testing.T) {
	f := kubetest.NewFake()
	one, two := numberOf(t, f), numberOf(t, f)
	numbers(t, one, "a", 100, 100)
	numbers(t, two, "a", 200, 100)
	numbers(t, two, "b", 200, 200)
	outdated(t, one, "a") // it is late
	numbers(t, one, "b", 300, 200)
	numbers(t, one, "c", 5, 201) // its clock went back
	numbers(t, one, "c", 500, 201)
}

func TestBundleNumberOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := kubetest.NewFake()
		numbers(t, numberOf(t, f), "a", 100, 100)
		again := numberOf(t, f)
		numbers(t, again, "a", 1, 100)
		again = numberOf(t, f) // its content may be older than the record's
		outdated(t, again, "b")
		time.Sleep(settle - time.Second)
		outdated(t, again, "b")
		time.Sleep(time.Second)
		numbers(t, again, "b", 1, 101)
	})
}

// Two replicas that see another content at once: the second takes the number of the first.
func TestReplicasThatNumberAtOnceAgree(t *testing.T) {
	s := newAPIServer()
	one := numberOf(t, s.Fake)
	numbers(t, one, "a", 100, 100)
	s.meanwhile(func() { s.put(record.BundleNumberKey, `{"version":1,"number":200,"digest":"b"}`) })
	numbers(t, one, "b", 300, 200)
}

// The number of the newest content stays, whatever the store does.
func TestFailedStoreNumbersNothing(t *testing.T) {
	f := kubetest.NewFake()
	n := numberOf(t, f)
	numbers(t, n, "a", 100, 100)
	f.Fail(apierrors.NewServiceUnavailable("away"))
	if got, err := n.Number(t.Context(), "b", 200); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("%d, %v", got, err)
	}
	f.Fail(nil)
	numbers(t, n, "b", 1, 101)
}

// A record of a newer version is neither used nor replaced, and a malformed one is replaced.
func TestUnusableBundleNumber(t *testing.T) {
	s := newAPIServer()
	s.put(record.BundleNumberKey, `{"version":2,"number":7}`)
	if got, err := numberOf(t, s.Fake).Number(t.Context(), "a", 100); err == nil || errors.Is(err, share.ErrConflict) {
		t.Errorf("the number is %d: %v", got, err)
	}
	s.put(record.BundleNumberKey, "{")
	numbers(t, numberOf(t, s.Fake), "a", 100, 100)
}
