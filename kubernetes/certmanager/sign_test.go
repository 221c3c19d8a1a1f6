package certmanager

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"
	"github.com/cert-manager/issuer-lib/controllers/signer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestGrantedRequestGetsACertificateOfItsNames(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		bundle := h.must(honest())
		certs, err := pki.ParseCertificates(bundle.ChainPEM)
		must(t, err)
		leaf := certs[0]
		if len(certs) != 2 || !slices.Equal(leaf.DNSNames, []string{web}) || len(leaf.URIs) > 0 || leaf.NotAfter.After(time.Now().Add(time.Hour)) {
			t.Errorf("%d certificates, %v, %v, until %s", len(certs), leaf.DNSNames, leaf.URIs, leaf.NotAfter)
		}
		if !bytes.Equal(bundle.CAPEM, h.ca.Bundle().PEM()) {
			t.Error("the roots are others")
		}
		for _, part := range []string{`"kind":"namespace"`, `"namespace":"shop"`, `"object":"uid-1"`, `"verified":"certificate request"`} {
			if !strings.Contains(h.audit.String(), part) {
				t.Errorf("the audit log lacks %s: %s", part, h.audit.String())
			}
		}
		if h.happened("ca issued") != 1 {
			t.Errorf("%v", h.events)
		}
	})
}

// The names that a rule gives must be there, and others may be asked for.
// cert-manager renews a certificate at once that lives longer than renewBefore by less than it was
// backdated.
func TestLifetimeIsTheRulesWithTheBackdating(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		for n := range 3 {
			r := honest()
			r.UID, r.Spec.Duration.Duration = types.UID(strconv.Itoa(n)), 48*time.Hour
			certs, err := pki.ParseCertificates(h.must(r).ChainPEM)
			must(t, err)
			leaf := certs[0]
			if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 24*time.Hour || life < 23*time.Hour {
				t.Errorf("it lives for %s", life)
			}
		}
	})
}

func TestRuleWithNamesOfItsOwnGivesAllOfThem(t *testing.T) {
	id := spiffe("spiffe://example.org/ns/bank")
	for name, c := range map[string]struct {
		csr  x509.CertificateRequest
		want string
	}{
		"exactly":         {x509.CertificateRequest{URIs: id, DNSNames: []string{"bank.example.org"}}, "issued"},
		"one more":        {x509.CertificateRequest{URIs: id, DNSNames: []string{"bank.example.org", "a.bank.apps.example.org"}}, "issued"},
		"one is missing":  {x509.CertificateRequest{URIs: id, DNSNames: []string{"a.bank.apps.example.org"}}, "permanent"},
		"no SPIFFE ID":    {x509.CertificateRequest{DNSNames: []string{"bank.example.org"}}, "permanent"},
		"another's ID":    {x509.CertificateRequest{URIs: spiffe("spiffe://example.org/ns/shop"), DNSNames: []string{"bank.example.org"}}, "permanent"},
		"one not allowed": {x509.CertificateRequest{URIs: id, DNSNames: []string{"bank.example.org", "www.example.org"}}, "permanent"},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				r := honest()
				r.Namespace, r.Spec.Request = "bank", ratest.CSR(pki.ECDSAP256, &c.csr)
				r.Spec.Usages = append(r.Spec.Usages, "server auth", "client auth")
				_, err := h.try(r, clusterIssuer("ca"))
				h.wants(err, c.want, "")
			})
		})
	}
}

// A certificate that was made as asked, and does not have the usages that the rule demands, would
// stop the rule for all.
func TestRuleThatDemandsUsagesIsOnlyForRequestsOfThem(t *testing.T) {
	for name, usages := range map[string][]cmapi.KeyUsage{
		"none": nil, "server": {"server auth"}, "client": {"client auth"}, "key": {"digital signature"},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				r := honest()
				r.Namespace, r.Spec.Usages = "bank", usages
				r.Spec.Request = ratest.CSR(pki.ECDSAP256, &x509.CertificateRequest{URIs: spiffe("spiffe://example.org/ns/bank"), DNSNames: []string{"bank.example.org"}})
				_, err := h.try(r, clusterIssuer("ca"))
				h.wants(err, "permanent", `the rule gives certificates for "both"`)
			})
		})
	}
}

func TestIssuerUsesOnlyAuthoritiesThatListIt(t *testing.T) {
	in := func(namespace string) *request {
		r := honest()
		r.Namespace, r.Spec.Request = namespace, named("a."+namespace+".apps.example.org")
		return r
	}
	for name, c := range map[string]struct {
		namespace, authority string
		cluster              bool
		want                 string
	}{
		"listed":                       {"shop", "ca", false, "issued"},
		"listed by a pattern":          {"team-a", "ca", false, "issued"},
		"not listed":                   {"bank", "ca", false, "issuer"},
		"no such authority":            {"shop", "other", false, "issuer"},
		"no authority":                 {"shop", "", false, "issuer"},
		"cluster issuer":               {"shop", "ca", true, "issued"},
		"cluster issuer, not listed":   {"shop", "plain", true, "issuer"},
		"cluster issuer, of no rule":   {"other", "ca", true, "permanent"},
		"pattern is no part of a name": {"my-team-a", "ca", false, "issuer"},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				one, all := issuerOf(c.authority), clusterIssuer(c.authority)
				one.Namespace = c.namespace
				var err, checked error
				if c.cluster {
					_, err = h.try(in(c.namespace), all)
					checked = h.check(t.Context(), all)
				} else {
					_, err = h.try(in(c.namespace), one)
					checked = h.check(t.Context(), one)
				}
				h.wants(err, c.want, "")
				if (checked != nil) != (c.want == "issuer") || errors.As(checked, &signer.PermanentError{}) {
					t.Errorf("the issuer is checked as %v", checked)
				}
				if c.want != "issued" && h.asked() > 0 {
					t.Error("the CA was asked")
				}
			})
		})
	}
}

// Who may not use an authority does not learn whether there is one.
func TestUnknownAuthoritySoundsLikeOneOfOthers(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		foreign, unknown := issuerOf("ca"), issuerOf("xx")
		foreign.Namespace, unknown.Namespace = "bank", "bank"
		a, b := h.check(t.Context(), foreign).Error(), h.check(t.Context(), unknown).Error()
		if strings.ReplaceAll(a, `"ca"`, `"xx"`) != b {
			t.Errorf("%s\n%s", a, b)
		}
	})
}

// Each error of an engine, as issuer-lib takes it.
func TestErrorsBecomeThoseOfIssuerLib(t *testing.T) {
	for reason, c := range map[ca.Reason]struct{ first, later string }{
		ca.Unknown:         {"pending", "pending"},
		ca.Invalid:         {"pending", "permanent"},
		ca.Denied:          {"pending", "permanent"},
		ca.Unauthenticated: {"issuer", "issuer"},
		ca.RateLimited:     {"pending", "pending"},
		ca.Unavailable:     {"pending", "pending"},
		ca.Aborted:         {"pending", "pending"},
		ca.Internal:        {"pending", "pending"},
		ca.Deadline:        {"pending", "pending"},
		ca.NotConfigured:   {"issuer", "issuer"},
		ca.Unimplemented:   {"issuer", "issuer"},
		ca.Canceled:        {"pending", "pending"},
	} {
		t.Run(reason.String(), func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				h.ca.Always(catest.Fault{Err: ca.Errorf(reason, "the CA says so")})
				r := honest()
				time.Sleep(2 * time.Hour) // as it waited for an authority that was away
				_, err := h.try(r, issuerOf("ca"))
				h.wants(err, c.first, "the CA says so")
				for _, step := range []struct {
					after time.Duration
					want  string
				}{{59 * time.Minute, c.first}, {2 * time.Minute, c.later}, {time.Hour, c.later}} {
					time.Sleep(step.after)
					h.wants(h.errorOf(r.UID, ca.Errorf(reason, "the CA says so")), step.want, "the CA says so")
				}
				if h.desk.drop(r.UID, false); len(h.desk.first) > 0 {
					t.Errorf("kept: %v", h.desk.first)
				}
				if h.asked() < 1 {
					t.Error("the CA was not asked")
				}
			})
		})
	}
}

func TestPendingRequestWaitsAsLongAsTheAuthorityAsks(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		err := h.errorOf("uid-1", &ca.Error{Reason: ca.RateLimited, Message: "wait", RetryAfter: 20 * time.Second})
		if after := pause(err); after < 20*time.Second || after > 30*time.Second {
			t.Errorf("comes back after %s", after)
		}
	})
}

// A CA that is away is asked again for the very same CSR, and the request never fails.
func TestRequestOutlastsAnAuthorityThatIsAway(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unavailable, "away")})
		r := honest()
		for range 300 {
			_, err := h.try(r, issuerOf("ca"))
			h.wants(err, "pending", "")
			time.Sleep(pause(err))
		}
		calls := h.asked()
		if calls < 10 || calls > 330 {
			t.Errorf("%d calls in %s", calls, time.Since(r.CreationTimestamp.Time))
		}
		h.ca.Always(catest.Fault{})
		for range 5 {
			if _, err := h.try(r, issuerOf("ca")); err == nil {
				break
			}
			time.Sleep(time.Minute)
		}
		h.must(r)
		all := h.ca.Requests()
		for _, one := range all {
			if !bytes.Equal(one.CSR, all[0].CSR) {
				t.Fatal("another CSR")
			}
		}
	})
}

func TestIssuerIsNotReadyWhileItsAuthorityCannotSign(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		must(t, h.check(t.Context(), issuerOf("ca")))
		h.ca.Next(1, catest.Fault{Err: ca.Errorf(ca.Unauthenticated, "the token is refused")})
		_, err := h.try(honest(), issuerOf("ca"))
		h.wants(err, "issuer", "the token is refused")
		if err := h.check(t.Context(), clusterIssuer("ca")); err == nil || !strings.Contains(err.Error(), "the token is refused") {
			t.Errorf("checked as %v", err)
		}
		must(t, h.check(t.Context(), issuerOf("plain")))
		time.Sleep(troubleFor)
		must(t, h.check(t.Context(), issuerOf("ca")))
		h.must(honest())
	})
}

// A worker is not kept by an authority that takes long. The request is woken when it has answered.
func TestSlowAuthorityKeepsNoWorker(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Next(1, catest.Fault{Delay: 20 * time.Second})
		began := time.Now()
		_, err := h.try(honest(), issuerOf("ca"))
		h.wants(err, "pending", errAtWork.Error())
		if took := time.Since(began); took > hold {
			t.Errorf("it kept the worker for %s", took)
		}
		_, err = h.try(honest(), issuerOf("ca")) // as when its annotations change
		h.wants(err, "pending", errAtWork.Error())
		if h.wakes() != 0 {
			t.Error("woken without an answer")
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if h.wakes() != 1 || h.woken[0] != "shop/req-1" {
			t.Errorf("woken: %v", h.woken)
		}
		h.must(honest())
		if h.asked() != 1 {
			t.Errorf("%d calls", h.asked())
		}
	})
}

// A cache that is late, or a status that the API server did not take, costs no second certificate.
func TestRequestIsAnsweredOnce(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		first := h.must(honest())
		time.Sleep(10 * time.Minute)
		if again := h.must(honest()); !bytes.Equal(again.ChainPEM, first.ChainPEM) || h.asked() != 1 {
			t.Errorf("%d calls, or another certificate", h.asked())
		}
		h.desk.drop("uid-1", false)
		if len(h.desk.orders) != 0 || len(h.desk.of) != 0 {
			t.Errorf("kept: %v, %v", h.desk.orders, h.desk.of)
		}
		other := honest()
		other.UID = "uid-2"
		if second := h.must(other); bytes.Equal(second.ChainPEM, first.ChainPEM) || h.asked() != 2 {
			t.Errorf("%d calls, or another's certificate", h.asked())
		}
	})
}

// A certificate that could not be delivered while it lived is of no use to anybody.
func TestCertificateThatExpiredUndeliveredIsReplaced(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		first := h.must(honest())
		time.Sleep(time.Hour + time.Minute)
		_, err := h.try(honest(), issuerOf("ca"))
		h.wants(err, "pending", "expired")
		if again := h.must(honest()); bytes.Equal(again.ChainPEM, first.ChainPEM) {
			t.Error("the same certificate")
		}
	})
}

// Without cert-manager's webhook the spec of a request can change.
func TestChangedRequestGetsNoCertificateOfTheOldKey(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Next(1, catest.Fault{Delay: 20 * time.Second})
		_, err := h.try(honest(), issuerOf("ca"))
		h.wants(err, "pending", "")
		changed := honest()
		changed.Spec.Request = named("b.shop.apps.example.org")
		certs, err := pki.ParseCertificates(h.must(changed).ChainPEM)
		must(t, err)
		if !slices.Equal(certs[0].DNSNames, []string{"b.shop.apps.example.org"}) {
			t.Errorf("%v", certs[0].DNSNames)
		}
	})
}

// A request that was deleted while it waited for its turn is not asked for.
func TestDeletedRequestLosesItsPlace(t *testing.T) {
	inHouse(t, func(h *house) { h.limits = ra.Limits{Rate: 1. / 60, Burst: 1} }, func(h *house) {
		h.must(honest())
		second := honest()
		second.UID, second.Spec.Request = "uid-2", named("b.shop.apps.example.org")
		_, err := h.try(second, issuerOf("ca"))
		h.wants(err, "pending", "")
		h.desk.drop(second.UID, false)
		time.Sleep(10 * time.Minute)
		if h.asked() != 1 {
			t.Errorf("%d calls", h.asked())
		}
	})
}

// A request that ended before the desk had it is told of by no event any more.
func TestRequestThatEndedMeanwhileLosesItsPlace(t *testing.T) {
	for name, end := range map[string]func(h *house, r *request){
		"deleted":   func(h *house, r *request) { clear(h.cache.all) },
		"made anew": func(h *house, r *request) { r.UID = "uid-2" },
		"issued": func(h *house, r *request) {
			r.Status.Conditions = []cmapi.CertificateRequestCondition{condition("Ready", "True", "Issued")}
		},
		"still open": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				h.ca.Always(catest.Fault{Delay: 20 * time.Second})
				shown, want := honest(), 1
				h.cache.put(shown)
				if end != nil {
					end(h, shown)
					want = 0
				}
				_, err := h.sign(h.t.Context(), signer.CertificateRequestObjectFromCertificateRequest(honest()), issuerOf("ca"))
				if h.wants(err, "pending", ""); len(h.desk.orders) != want {
					t.Errorf("%d orders, want %d", len(h.desk.orders), want)
				}
			})
		})
	}
}

// The last event about a request may be that there is another of its name.
func TestEndOfARequestReachesTheQueue(t *testing.T) {
	another, done := honest(), honest()
	another.UID = "uid-2"
	done.Status.Conditions = []cmapi.CertificateRequestCondition{condition("Ready", "True", "Issued")}
	for name, c := range map[string]struct {
		event func(h toolscache.ResourceEventHandler)
		want  int
	}{
		"changed":   {func(h toolscache.ResourceEventHandler) { h.OnUpdate(honest(), honest()) }, 1},
		"made anew": {func(h toolscache.ResourceEventHandler) { h.OnUpdate(honest(), another) }, 0},
		"issued":    {func(h toolscache.ResourceEventHandler) { h.OnUpdate(honest(), done) }, 0},
		"deleted":   {func(h toolscache.ResourceEventHandler) { h.OnDelete(honest()) }, 0},
		"deleted, unseen": {func(h toolscache.ResourceEventHandler) {
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: honest()})
		}, 0},
		"another": {func(h toolscache.ResourceEventHandler) { h.OnDelete(another) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				h.must(honest())
				if c.event(ends(h.desk)); len(h.desk.orders) != c.want {
					t.Errorf("%d orders, want %d", len(h.desk.orders), c.want)
				}
			})
		})
	}
}

// flood asks for n certificates of a namespace and returns how many there was no room for.
func (h *house) flood(namespace string, n int) (full int) {
	h.t.Helper()
	for i := range n {
		r := honest()
		r.Namespace, r.UID = namespace, types.UID(fmt.Sprint(namespace, "-", i))
		r.Spec.Request = named(fmt.Sprintf("a%d.%s.apps.example.org", i%50, namespace))
		_, err := h.try(r, clusterIssuer("ca"))
		if h.wants(err, "pending", ""); strings.Contains(err.Error(), "too many") {
			full++
		}
	}
	return full
}

// Floods leave room for other namespaces and other authorities, and cost no worker.
func TestFloodsLeaveRoomForOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inHouse(t, nil, func(h *house) {
		h.desk.room = 400
		h.ca.Always(catest.Fault{Delay: 25 * time.Second})
		began := time.Now()
		if full := h.flood("team-a", 300) + h.flood("shop", 300); full != 100 || len(h.desk.orders) != h.desk.room {
			t.Errorf("%d were too many, %d have a place", full, len(h.desk.orders))
		}
		if took := time.Since(began); took > busy*hold {
			t.Errorf("they kept workers for %s", took)
		}
		if a, b := h.desk.of[tenant{"team-a", "cert-manager/ca"}], h.desk.of[tenant{"shop", "cert-manager/ca"}]; a != 200 || b != 200 {
			t.Errorf("%d and %d have a place", a, b)
		}
		plain := honest()
		plain.UID = "plain"
		h.soon(plain, issuerOf("plain"), time.Second)
		h.ca.Always(catest.Fault{})
		other := honest()
		other.Namespace, other.UID = "bank", "other"
		other.Spec.Usages = append(other.Spec.Usages, "server auth", "client auth")
		other.Spec.Request = ratest.CSR(pki.ECDSAP256, &x509.CertificateRequest{URIs: spiffe("spiffe://example.org/ns/bank"), DNSNames: []string{"bank.example.org"}})
		h.soon(other, clusterIssuer("ca"), time.Minute)
	})
}

// soon demands a certificate within that time.
func (h *house) soon(r *request, issuer issuerapi.Issuer, within time.Duration) {
	h.t.Helper()
	_, err := h.try(r, issuer)
	for began := time.Now(); err != nil && time.Since(began) < within; {
		h.wants(err, "pending", errAtWork.Error())
		time.Sleep(time.Second)
		_, err = h.try(r, issuer)
	}
	must(h.t, err)
}

// An answer has its place until it is delivered, as another would cost a certificate.
func TestFloodOfOthersCostsNoAnswer(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		for i := range 10 {
			r := honest()
			r.UID = types.UID(fmt.Sprint("uid-", i))
			r.Spec.Request = named(fmt.Sprintf("a%d.shop.apps.example.org", i))
			h.must(r)
		}
		h.desk.room = 10
		if full := h.flood("team-a", 1); full != 1 || len(h.desk.orders) != 10 {
			t.Errorf("%d were too many, %d have a place", full, len(h.desk.orders))
		}
	})
}

// What the cache shows may be over.
func TestOnlyALiveOpenRequestIsSigned(t *testing.T) {
	for name, c := range map[string]struct {
		live func(r *request)
		away error
		want string
	}{
		"open":         {func(*request) {}, nil, "sign"},
		"deleted":      {nil, nil, "ignore"},
		"another":      {func(r *request) { r.UID = "uid-2" }, nil, "ignore"},
		"not approved": {func(r *request) { r.Status.Conditions = nil }, nil, "ignore"},
		"denied": {func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Denied", "True", "x"))
		}, nil, "ignore"},
		"pending": {func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Ready", "False", "Pending"))
		}, nil, "sign"},
		"issued": {func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Ready", "True", "Issued"))
		}, nil, "ignore"},
		"failed": {func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Ready", "False", "Failed"))
		}, nil, "ignore"},
		"finally denied": {func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Ready", "False", "Denied"))
		}, nil, "ignore"},
		"nobody can say":     {func(*request) {}, errors.New("away"), "later"},
		"approval withdrawn": {func(r *request) { r.Status.Conditions[0].Status = "False" }, nil, "ignore"},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				h.api.away = c.away
				if c.live != nil {
					r := honest()
					c.live(r)
					h.api.all[types.NamespacedName{Namespace: "shop", Name: "req-1"}] = r
				}
				ignored, err := h.ignore(t.Context(), signer.CertificateRequestObjectFromCertificateRequest(honest()), schema.GroupVersionKind{}, types.NamespacedName{})
				got := map[bool]string{true: "ignore", false: "sign"}[ignored]
				if err != nil {
					got = "later"
				}
				if got != c.want {
					t.Errorf("%s (%v), want %s", got, err, c.want)
				}
			})
		})
	}
}

func TestCacheKeepsOnlyWhatIsNeeded(t *testing.T) {
	foreign, done := honest(), honest()
	foreign.Spec.IssuerRef.Group = "cert-manager.io"
	done.Status.Conditions = append(done.Status.Conditions, condition("Ready", "True", "Issued"))
	for _, r := range []*request{foreign, done} {
		r.Status.Certificate, r.ManagedFields = []byte("chain"), []metav1.ManagedFieldsEntry{{Manager: "x"}}
		small, err := trim(r.DeepCopy())
		must(t, err)
		if s := small.(*request); len(s.Spec.Request)+len(s.Status.Certificate)+len(s.ManagedFields) > 0 || len(s.Status.Conditions) != len(r.Status.Conditions) {
			t.Errorf("kept: %+v", s)
		}
	}
	open := honest()
	open.Annotations, open.Labels, open.Finalizers = map[string]string{"a": "b"}, map[string]string{"c": "d"}, []string{"e"}
	ours, err := trim(open)
	must(t, err)
	kept := ours.(*request)
	if !bytes.Equal(kept.Spec.Request, honest().Spec.Request) {
		t.Error("an open request has lost its CSR")
	}
	if len(kept.Annotations)+len(kept.Labels)+len(kept.Finalizers) > 0 {
		t.Errorf("a waiting request keeps what its owner may fill: %+v", kept.ObjectMeta)
	}
}

// A certificate that was issued and reached no request has a line of its own, however that came about.
func TestCertificateThatReachesNoRequestIsWithheld(t *testing.T) {
	failed := honest()
	failed.Status.Conditions = []cmapi.CertificateRequestCondition{condition("Ready", "False", "Failed")}
	done := honest()
	done.Status.Conditions = []cmapi.CertificateRequestCondition{condition("Ready", "True", "Issued")}
	for name, c := range map[string]struct {
		collected bool
		end       func(h *house)
		want      int
	}{
		"issued":              {true, func(h *house) { ends(h.desk).OnUpdate(honest(), done) }, 0},
		"deleted":             {true, func(h *house) { ends(h.desk).OnDelete(honest()) }, 1},
		"failed":              {true, func(h *house) { ends(h.desk).OnUpdate(honest(), failed) }, 1},
		"issued by another":   {false, func(h *house) { ends(h.desk).OnUpdate(honest(), done) }, 1},
		"changed":             {true, func(h *house) { _, _ = h.try(changed(), issuerOf("ca")) }, 1},
		"the end of the work": {false, func(*house) {}, 1},
		"the end, once given": {true, func(*house) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var audit *ratest.Audit
			inHouse(t, nil, func(h *house) {
				audit = &h.audit
				h.ca.Next(1, catest.Fault{Delay: 10 * time.Second})
				_, err := h.try(honest(), issuerOf("ca"))
				h.wants(err, "pending", "")
				time.Sleep(time.Minute)
				if c.collected {
					h.must(honest())
				}
				c.end(h)
			})
			if lines := audit.Lines(t, "withheld"); len(lines) != c.want {
				t.Errorf("%v", lines)
			}
		})
	}
}

// changed is another request under the same UID.
func changed() *request {
	r := honest()
	r.Spec.Request = named("b.shop.apps.example.org")
	return r
}

func TestCertificateThatComesAsItsRequestIsDroppedIsWithheld(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.desk.issue = func(ctx context.Context, o *ra.Order) (ra.Certificate, error) {
			cert, err := h.engine.Issue(ctx, o)
			h.desk.drop("uid-1", false)
			return cert, err
		}
		_, _ = h.try(honest(), issuerOf("ca"))
		synctest.Wait() // the line follows the answer
		if lines := h.audit.Lines(t, "withheld"); len(lines) != 1 {
			t.Errorf("%v", lines)
		}
	})
}
