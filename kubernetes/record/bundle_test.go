package record_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	settle    = 10 * time.Minute
	forget    = 24 * time.Hour
	bundleMap = "countersign-ra-bundle"
)

// publishes is a replica.
type publishes func(ctx context.Context, own *pki.Bundle, least uint64) (*pki.Bundle, uint64, error)

func replica(t *testing.T, f *kubetest.Fake) publishes { return replicaOf(t, f, "example.org") }

func replicaOf(t *testing.T, f *kubetest.Fake, trustDomain string) publishes {
	t.Helper()
	shared, err := record.Shared(record.Publishing{
		Object:      record.Object{Client: f.Client(), Kind: record.ConfigMap, Namespace: "ra", Name: bundleMap},
		TrustDomain: trustDomain, Settle: settle, Forget: forget, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

// letters are roots, each with the name of a letter.
type letters map[rune]*certtest.Pair

func newLetters(t *testing.T, names string) letters {
	t.Helper()
	l := letters{}
	for _, name := range names {
		l[name] = certtest.Root(t)
	}
	return l
}

func (l letters) bundle(names string) *pki.Bundle {
	all := pki.NewBundle()
	for _, name := range names {
		all = all.Union(pki.NewBundle(l[name].Cert))
	}
	return all
}

// record is that of a bundle.
func (l letters) record(version, number, names string) string {
	return `{"version":` + version + `,"number":` + number + `,"roots":"` + strings.ReplaceAll(string(l.bundle(names).PEM()), "\n", `\n`) + `"}`
}

// are asserts what a replica publishes once it reads the record again, at the time now (Unix, in seconds).
// It does not know its own roots if these are "".
func (l letters) are(t *testing.T, shared publishes, own string, now uint64, want string, number uint64) {
	t.Helper()
	time.Sleep(record.ReadAgain)
	var held *pki.Bundle
	if own != "" {
		held = l.bundle(own)
	}
	roots, got, err := shared(t.Context(), held, now)
	if got != number || !roots.Equal(l.bundle(want)) || err != nil {
		names := ""
		for name, root := range l {
			if roots.Contains(root.Cert) {
				names += string(name)
			}
		}
		t.Errorf("with %s, it publishes %s with %d (%v), want %s with %d", own, names, got, err, want, number)
	}
}

func TestReplicasPublishTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := kubetest.NewFake(), newLetters(t, "abc")
		one, two := replica(t, f), replica(t, f)
		l.are(t, one, "a", 100, "a", 100)
		l.are(t, two, "a", 200, "a", 100)
		l.are(t, two, "ab", 200, "ab", 200)
		l.are(t, one, "a", 300, "ab", 200) // it is late
		l.are(t, one, "ab", 300, "ab", 200)
		l.are(t, one, "c", 5, "c", 201) // its clock went back
		l.are(t, two, "ab", 500, "c", 201)
		l.are(t, two, "c", 500, "c", 201)
	})
}

func TestPublishedBundleOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := kubetest.NewFake(), newLetters(t, "ab")
		l.are(t, replica(t, f), "a", 100, "a", 100)
		again := replica(t, f)
		l.are(t, again, "a", 1, "a", 100)
		again = replica(t, f) // its roots may be older than the record's, and may be newer
		l.are(t, again, "b", 1, "a", 100)
		time.Sleep(settle - 2*record.ReadAgain)
		l.are(t, again, "b", 1, "a", 100)
		l.are(t, again, "b", 1, "ab", 101)
		l.are(t, again, "b", 1, "ab", 101)
		time.Sleep(forget - 2*record.ReadAgain)
		l.are(t, again, "b", 1, "ab", 101)
		l.are(t, again, "b", 1, "b", 102)
	})
}

// A replica that starts after the CA's root was exchanged has the new root alone, and the others have
// the old one for as long as it overlaps.
func TestRootThatOverlapsOnOtherReplicasIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := kubetest.NewFake(), newLetters(t, "ab")
		one := replica(t, f)
		l.are(t, one, "a", 100, "a", 100)
		l.are(t, one, "ab", 200, "ab", 200)
		later := replica(t, f)
		for range 6 {
			l.are(t, later, "b", 300, "ab", 200)
			l.are(t, one, "ab", 300, "ab", 200)
			time.Sleep(time.Hour)
		}
		l.are(t, one, "b", 400, "b", 400)
		l.are(t, later, "b", 500, "b", 400)
	})
}

// Two replicas that see a change at once: the second takes the number of the first.
func TestReplicasThatPublishAtOnceAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newAPIServer(), newLetters(t, "ab")
		one := replica(t, s.Fake)
		l.are(t, one, "a", 100, "a", 100)
		s.meanwhile(func() { s.keep(l.record("1", "200", "b")) })
		l.are(t, one, "b", 300, "b", 200)
	})
}

// A running replica restores what it has read, whatever time its clock shows: a ConfigMap that was deleted,
// or replaced by an old copy.
func TestLostRecordDoesNotSetTheNumberBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newAPIServer(), newLetters(t, "ab")
		one, two := replica(t, s.Fake), replica(t, s.Fake)
		l.are(t, one, "a", 100, "a", 100)
		old := s.kept()
		l.are(t, one, "b", 200, "b", 200)
		l.are(t, two, "b", 1, "b", 200)
		s.Remove("configmaps", "ra", bundleMap)
		l.are(t, two, "b", 1, "b", 200)
		l.are(t, one, "b", 1, "b", 200)
		s.keep(old)
		l.are(t, two, "b", 1, "b", 200)
		s.Remove("configmaps", "ra", bundleMap)
		l.are(t, one, "a", 1, "a", 201) // its roots change at the same time
	})
}

// What is published stays while the store fails. A change is made up for.
func TestFailedStorePublishesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := kubetest.NewFake(), newLetters(t, "ab")
		one := replica(t, f)
		l.are(t, one, "a", 100, "a", 100)
		f.Fail(apierrors.NewServiceUnavailable("away"))
		l.are(t, one, "b", 200, "a", 100)
		if roots, number, err := replica(t, f)(t.Context(), l.bundle("a"), 1); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a replica that never read the record publishes %d roots with %d, %v", roots.Len(), number, err)
		}
		f.Fail(nil)
		time.Sleep(record.AskAgain)
		l.are(t, one, "b", 1, "b", 101)
	})
}

// A replica that cannot read which roots it has publishes those of the record, for however long that lasts.
func TestReplicaWithoutRootsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newAPIServer(), newLetters(t, "abc")
		one, two, later := replica(t, s.Fake), replica(t, s.Fake), replica(t, s.Fake)
		if _, _, err := later(t.Context(), nil, 50); err == nil || s.kept() != "" {
			t.Errorf("it publishes nothing without an error, the record is %q", s.kept())
		}
		l.are(t, one, "a", 100, "a", 100)
		l.are(t, two, "a", 100, "a", 100)
		l.are(t, one, "ab", 200, "ab", 200)
		for range 3 {
			l.are(t, two, "", 300, "ab", 200)
			l.are(t, later, "", 300, "ab", 200)
			time.Sleep(forget)
		}
		l.are(t, two, "ab", 300, "ab", 200)
		s.Remove("configmaps", "ra", bundleMap)
		l.are(t, later, "", 1, "ab", 200)
		l.are(t, later, "abc", 300, "ab", 200)
	})
}

// For how long a replica did not know its roots does not count.
func TestReplicaWithoutRootsHasNotSeenADifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := kubetest.NewFake(), newLetters(t, "ab")
		one, two := replica(t, f), replica(t, f)
		l.are(t, one, "ab", 100, "ab", 100)
		l.are(t, two, "a", 100, "ab", 100)
		l.are(t, two, "", 100, "ab", 100)
		time.Sleep(forget)
		l.are(t, two, "a", 100, "ab", 100)
	})
}

// The roots of one trust domain are never published as those of another.
func TestRecordOfAnotherTrustDomainGivesNoRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := kubetest.NewFake(), newLetters(t, "ab")
		l.are(t, replica(t, f), "a", 100, "a", 100)
		renamed := replicaOf(t, f, "example.com")
		if roots, _, err := renamed(t.Context(), nil, 1); err == nil {
			t.Errorf("it publishes %d roots of another trust domain", roots.Len())
		}
		l.are(t, renamed, "b", 1, "b", 101)
	})
}

// Roots that another client has damaged are written again, with the others' ones among them.
func TestMalformedRootsAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newAPIServer(), newLetters(t, "ab")
		one := replica(t, s.Fake)
		l.are(t, one, "ab", 100, "ab", 100)
		two := replica(t, s.Fake)
		l.are(t, two, "a", 200, "ab", 100)
		for text, number := range map[string]uint64{`{"version":1,"number":100,"roots":"no PEM"}`: 100, `{"version":1,"number":100}`: 100, `{"number":7}`: 100} {
			s.keep(text)
			l.are(t, two, "a", 1, "ab", number)
		}
		s.keep(`{"version":1,"number":500,"roots":"no PEM"}`)
		l.are(t, two, "a", 1, "ab", 501)
		l.are(t, one, "ab", 1, "ab", 501)
	})
}

// A trust anchor need not be self-signed.
func TestRecordHasAnyTrustAnchor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := kubetest.NewFake(), newLetters(t, "ac")
		l['b'] = l['a'].Issue(t, &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "between"}, NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		})
		l.are(t, replica(t, f), "b", 100, "b", 100)
		l.are(t, replica(t, f), "c", 200, "b", 100)
	})
}

// A record of a newer version is neither used nor replaced, and a malformed one is replaced.
func TestUnusableRecordOfABundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLetters(t, "ab")
		s, newer := newAPIServer(), l.record("2", "7", "b")
		s.keep(newer)
		if _, number, err := replica(t, s.Fake)(t.Context(), l.bundle("a"), 100); err == nil || s.kept() != newer {
			t.Errorf("it publishes %d: %v", number, err)
		}
		for text, number := range map[string]uint64{
			"": 100, "{": 100, `[]`: 100, l.record("1", `"x"`, "b"): 100, l.record("1", "-1", "b"): 100,
			`{"version":1,"number":500,"roots":"no PEM"}`: 501, l.record("1", "500", ""): 501,
			l.record("1", "18446744073709551615", "b"): 100, l.record("1", "99999999999999999999999", "b"): 100,
		} {
			s := newAPIServer()
			s.keep(text)
			l.are(t, replica(t, s.Fake), "a", 100, "a", number)
		}
	})
}

// keep writes the record of the bundle past the replicas, and kept returns it.
func (s apiServer) keep(text string) { s.putIn(bundleMap, record.BundleKey, text) }

func (s apiServer) kept() string { return s.data(bundleMap)[record.BundleKey] }
