package kubestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func copyIn(fake *kubetest.Fake, name string) *corev1.Secret {
	return kubetest.Get[corev1.Secret](fake, "secrets", namespace, name)
}

func TestCopyFollowsItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		a, b := newMachine(t, fake, withCopies), newMachine(t, fake, withCopies)
		a.follow(t)
		b.follow(t)
		var last secret.Record
		for days := range 3 {
			e, r := certificate(web, authority, time.Now().Add(time.Duration(days+1)*24*time.Hour))
			must(t, a.Store.Store(t.Context(), e, r))
			last = r
			time.Sleep(2 * time.Second)
			chain, key, err := secret.KeptPair(r)
			got := copyIn(fake, web)
			if got != nil && !strings.Contains(page(t), "-n "+namespace+" delete secrets -l countersign.dev/kind="+got.Labels["countersign.dev/kind"]+"`") {
				t.Errorf("the command of the page does not delete a copy, which has %v", got.Labels)
			}
			if err != nil || got == nil || got.Type != corev1.SecretTypeTLS || !bytes.Equal(got.Data["tls.crt"], chain) || !bytes.Equal(got.Data["tls.key"], key) {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		fake.Remove("secrets", namespace, web)
		time.Sleep(15 * time.Second)
		if copyIn(fake, web) == nil {
			t.Error("a deleted copy stays away")
		}
		changed := copyIn(fake, web)
		changed.TypeMeta, changed.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, namespace
		changed.Data["tls.crt"] = []byte("sesame")
		fake.Put(changed)
		time.Sleep(15 * time.Second)
		chain, _, err := secret.KeptPair(last)
		if err != nil || !bytes.Equal(copyIn(fake, web).Data["tls.crt"], chain) {
			t.Errorf("a changed copy stays as it is, %v", err)
		}
		quiet := fake.Changes()
		time.Sleep(time.Hour)
		if n := fake.Changes() - quiet; n != 0 {
			t.Errorf("%d writes while nothing changed", n)
		}
		must(t, a.Delete(t.Context(), web))
		time.Sleep(time.Minute)
		if copyIn(fake, web) != nil {
			t.Error("the copy outlives its record")
		}
	})
}

// Copies are turned on later, or the process that stored the record was killed before it wrote one.
func TestMissingCopiesAreWrittenAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		before := newMachine(t, fake, nil)
		for _, name := range []string{"a.test", "b.test"} {
			e, r := certificate(name, authority, time.Now().Add(24*time.Hour))
			must(t, before.Store.Store(t.Context(), e, r))
		}
		must(t, before.Store.Store(t.Context(), secret.Entry{Name: "c.test"}, secret.Record{Content: []byte(`{"version":1}`)}))
		m := newMachine(t, fake, withCopies)
		_, err := m.Index(t.Context())
		must(t, err)
		m.follow(t)
		m.away.Store(true)
		time.Sleep(time.Minute)
		m.away.Store(false)
		time.Sleep(2 * time.Minute)
		if copyIn(fake, "a.test") == nil || copyIn(fake, "b.test") == nil || copyIn(fake, "c.test") != nil {
			t.Error("copies are missing, or one has no certificate")
		}
	})
}

func TestCopyReplacesNoForeignSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		m := newMachine(t, fake, withCopies)
		m.follow(t)
		fake.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: web}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": []byte("theirs")}})
		e, r := certificate(web, authority, time.Now().Add(24*time.Hour))
		must(t, m.Store.Store(t.Context(), e, r))
		time.Sleep(time.Minute)
		must(t, m.Delete(t.Context(), web))
		if got := copyIn(fake, web); got == nil || string(got.Data["tls.crt"]) != "theirs" || m.Status().Foreign == 0 {
			t.Errorf("%+v, %+v", got, m.Status())
		}
	})
}

// An admission policy refuses some copies. The others are written all the same.
func TestRefusedCopyDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		m := newMachine(t, fake, withCopies)
		m.follow(t)
		var tries atomic.Int64
		fake.Also(func(c *kubetest.Call) error {
			if c.Verb == "create" && strings.HasPrefix(c.Name, "bad-") {
				tries.Add(1)
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, c.Name, errors.New("the policy says no"))
			}
			return nil
		})
		for i := range 30 {
			for _, name := range []string{fmt.Sprintf("bad-%d.test", i), fmt.Sprintf("good-%d.test", i)} {
				e, r := certificate(name, authority, time.Now().Add(24*time.Hour))
				must(t, m.Store.Store(t.Context(), e, r))
			}
		}
		time.Sleep(5 * time.Minute)
		for i := range 30 {
			if copyIn(fake, fmt.Sprintf("good-%d.test", i)) == nil {
				t.Errorf("the copy of good-%d.test is missing", i)
			}
		}
		if n := tries.Load(); n < 60 || n > 210 {
			t.Errorf("%d tries of 30 copies in 5 minutes", n)
		}
	})
}

// A record that another client wrote does not become a copy that looks like ours.
func TestDamagedRecordHasNoCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, authority := kubetest.NewFake(), catest.NewCA(catest.Options{})
		m := newMachine(t, fake, withCopies)
		m.follow(t)
		ends := time.Now().Add(24 * time.Hour)
		e, r := certificate("a.test", authority, ends)
		_, foreign := certificate("other.test", authority, ends)
		must(t, m.Store.Store(t.Context(), e, foreign))
		e.Name = "b.test"
		must(t, m.Store.Store(t.Context(), e, secret.Record{Content: []byte("sesame")}))
		time.Sleep(time.Minute)
		if copyIn(fake, "a.test") != nil || copyIn(fake, "b.test") != nil || m.Status().Damaged == 0 {
			t.Errorf("%+v", m.Status())
		}
		e.Name = "a.test"
		must(t, m.Store.Store(t.Context(), e, r))
		time.Sleep(time.Minute)
		if copyIn(fake, "a.test") == nil {
			t.Error("no copy of the record that replaced it")
		}
	})
}
