package certmanager

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// nth is a request of a namespace.
func nth(namespace string, n int) *request {
	r := honest()
	r.Namespace, r.Name = namespace, fmt.Sprint("req-", n)
	r.UID = types.UID(fmt.Sprint(namespace, "-", n))
	r.Spec.Request = named(fmt.Sprintf("a%d.%s.apps.example.org", n%50, namespace))
	return r
}

// wantReady demands a request's condition Ready, and so many calls of the CA.
func (h *house) wantReady(r *request, reason string, asked int) {
	h.t.Helper()
	if got, message := h.api.ready(r); got != reason || h.asked() != asked {
		h.t.Errorf("%s is %q (%s) after %d calls of the CA; want %q after %d", nameOf(r), got, message, h.asked(), reason, asked)
	}
}

// wantWithheld demands lines of certificates that reached no request.
func (h *house) wantWithheld(n int) {
	h.t.Helper()
	if lines := h.audit.Lines(h.t, "withheld"); len(lines) != n {
		h.t.Errorf("withheld: %v; want %d", lines, n)
	}
}

// The API server takes a second for each call, and has 10,000 requests of one namespace.
func TestFloodOfOneNamespaceDelaysNoOther(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inHouse(t, nil, func(h *house) {
		h.api.before = func(string, types.NamespacedName) error { time.Sleep(time.Second); return nil }
		for n := range 10000 {
			h.api.put(nth("shop", n))
		}
		late := nth("team-a", 0)
		h.api.put(late)
		time.Sleep(6 * time.Second)
		if reason, _ := h.api.ready(late); reason != "Issued" {
			t.Errorf("it is %q behind the flood", reason)
		}
		if h.asked() > 36 {
			t.Errorf("%d certificates were requested before", h.asked())
		}
		if flood, all := h.api.peaks("shop"); flood != 16 || all > 32 {
			t.Errorf("%d calls at once for the flood, %d for all; want 16 and 32 at most", flood, all)
		}
	})
}

// Requests that wait for their authority hold neither slots nor all of the room, in however many
// namespaces they are.
func TestWaitingRequestsLeaveRoomForOthers(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.work = signing.NewWork(h.ctx, 400, h.handle)
		h.api.feed = signing.Feed(h.work, open, (*request).GetNamespace)
		h.ca.Always(catest.Fault{Delay: 25 * time.Second})
		for n := range 300 {
			h.api.put(nth("shop", n))
			h.api.put(nth("team-a", n))
		}
		time.Sleep(5 * time.Second)
		h.ca.Always(catest.Fault{})
		other := bank()
		h.api.put(other)
		time.Sleep(30 * time.Second)
		if reason, message := h.api.ready(other); reason != "Issued" {
			t.Errorf("it is %q: %s", reason, message)
		}
	})
}

// bank is a request of a third namespace.
func bank() *request {
	r := honest()
	r.Namespace = "bank"
	usages("server auth", "client auth")(r)
	r.Spec.Request = ratest.CSR(pki.ECDSAP256, &x509.CertificateRequest{URIs: spiffe("spiffe://example.org/ns/bank"), DNSNames: []string{"bank.example.org"}})
	return r
}

func TestRequestIsPendingWhileItsAuthorityTakesLong(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Next(1, catest.Fault{Delay: 20 * time.Second})
		h.api.put(honest())
		time.Sleep(hold + time.Second)
		h.wantReady(honest(), "Pending", 1)
		if _, message := h.api.ready(honest()); message != errAtWork.Error() {
			t.Error(message)
		}
		time.Sleep(20 * time.Second)
		h.wantReady(honest(), "Issued", 1)
		if h.api.patches != 3 || h.happened("ca issued") != 1 {
			t.Errorf("%d patches, %v", h.api.patches, h.events)
		}
	})
}

// A certificate that comes at once costs no status but those of its beginning and its end.
func TestQuickCertificateCostsTwoWrites(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.api.put(honest())
		time.Sleep(time.Second)
		h.wantReady(honest(), "Issued", 1)
		if h.api.patches != 2 {
			t.Errorf("%d patches", h.api.patches)
		}
		h.api.feed.OnUpdate(honest(), honest()) // an informer that is late
		time.Sleep(time.Hour)
		h.wantReady(honest(), "Issued", 1)
	})
}

func TestCertificateIsWrittenAgainUntilTheStatusIsTaken(t *testing.T) {
	for name, reads := range map[string]bool{"writes fail": false, "all calls fail": true} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				h.api.set(func(verb string, _ types.NamespacedName) error {
					if (verb == "patch" || reads) && h.asked() > 0 {
						return errors.New("away")
					}
					return nil
				})
				h.api.put(honest())
				time.Sleep(10 * time.Minute)
				h.wantReady(honest(), "Initializing", 1)
				h.api.set(nil)
				time.Sleep(time.Minute)
				h.wantReady(honest(), "Issued", 1)
				h.wantWithheld(0)
			})
		})
	}
}

// cutReplies has the API server take each certificate, and lose its reply.
func (h *house) cutReplies() {
	h.api.after = func(verb string) error {
		if verb == "patch" && h.asked() > 0 {
			return errors.New("the connection is cut")
		}
		return nil
	}
}

// The API server wrote the status, and its reply was lost.
func TestLostReplyCostsNoSecondCertificate(t *testing.T) {
	for name, shown := range map[string]bool{"the informer shows it": true, "the informer is late": false} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				h.cutReplies()
				h.api.put(honest())
				if !shown {
					h.api.follow(toolscache.ResourceEventHandlerFuncs{})
					h.work.Again(honest().UID)
				}
				time.Sleep(time.Minute)
				h.wantReady(honest(), "Issued", 1)
				h.wantWithheld(0)
			})
		})
	}
}

// An issuer whose authority fails meanwhile is not ready for 30 seconds.
func TestCertificateIsKeptWhileItsIssuerIsNotReady(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Next(1, catest.Fault{Delay: 20 * time.Second})
		h.api.put(honest())
		time.Sleep(10 * time.Second)
		ready := h.issuer
		h.setIssuer(nil)
		time.Sleep(time.Minute)
		h.wantReady(honest(), "Pending", 1)
		h.setIssuer(ready)
		time.Sleep(time.Minute)
		h.wantReady(honest(), "Issued", 1)
		h.wantWithheld(0)
	})
}

// Requests whose authority failed while their issuer became unready cost no calls until it is ready.
func TestFailedRequestRestsWhileItsIssuerIsNotReady(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Always(catest.Fault{Delay: 20 * time.Second, Err: ca.Errorf(ca.Unauthenticated, "the token is refused")})
		for n := range 10 {
			h.api.put(nth("shop", n))
		}
		time.Sleep(10 * time.Second)
		ready := h.issuer
		h.setIssuer(nil)
		time.Sleep(time.Minute)
		var calls atomic.Int32
		h.api.set(func(string, types.NamespacedName) error { calls.Add(1); return nil })
		time.Sleep(time.Hour)
		if n := calls.Load(); n > 10 {
			t.Errorf("%d calls of the API server in an hour", n)
		}
		h.ca.Always(catest.Fault{})
		h.setIssuer(ready)
		for n := range 10 {
			h.work.Again(nth("shop", n).UID)
		}
		time.Sleep(15 * time.Minute)
		if n := h.happened("ca issued"); n != 10 {
			t.Errorf("%d are issued: %v", n, h.events)
		}
	})
}

// A certificate of an issuer that never gets ready is given up when it expires.
func TestCertificateIsGivenUpWhenItExpires(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Next(1, catest.Fault{Delay: 20 * time.Second})
		h.api.put(honest())
		time.Sleep(10 * time.Second)
		h.setIssuer(nil)
		time.Sleep(2 * time.Hour)
		h.wantWithheld(1)
		var calls atomic.Int32
		h.api.set(func(string, types.NamespacedName) error { calls.Add(1); return nil })
		time.Sleep(time.Hour)
		if n := calls.Load(); n > 0 {
			t.Errorf("%d calls of the API server in an hour", n)
		}
	})
}

// A request whose issuer is not ready rests until the issuer changes.
func TestRequestIsLookedAtAgainWhenItsIssuerChanges(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		ready := h.issuer
		h.setIssuer(nil)
		h.api.put(honest())
		time.Sleep(time.Hour)
		h.wantReady(honest(), "Pending", 0)
		h.setIssuer(ready)
		queue := h.noQueue(h.work)("", limiter())
		defer queue.ShutDown()
		queue.Add(requestOf(honest()))
		queue.Add(requestOf(nth("shop", 7))) // unknown
		time.Sleep(time.Second)
		h.wantReady(honest(), "Issued", 1)
	})
}

// A request that waits for one authority follows its issuer to another.
func TestWaitingRequestFollowsItsIssuer(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.ca.Always(catest.Fault{Delay: 30 * time.Minute})
		h.api.put(honest())
		time.Sleep(10 * time.Second)
		h.setIssuer(issuerOf("plain"))
		time.Sleep(lookAgain)
		h.wantReady(honest(), "Issued", 1)
	})
}

func TestRefusedRequestFails(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		r := honest()
		names("www.example.org")(r)
		h.api.put(r)
		time.Sleep(time.Hour)
		h.wantReady(r, "Failed", 0)
		if lines := h.audit.Refusals(t); lines != 1 {
			t.Errorf("%d refusals in the audit log", lines)
		}
	})
}

// Each of these needs nothing from us, whatever the informer showed.
func TestOnlyAnOpenRequestIsSigned(t *testing.T) {
	ready := func(status, reason string) func(r *request) {
		return func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Ready", status, reason))
		}
	}
	for name, c := range map[string]struct {
		change func(r *request)
		want   int
	}{
		"open":         {func(*request) {}, 1},
		"pending":      {ready("False", "Pending"), 1},
		"not approved": {func(r *request) { r.Status.Conditions = nil }, 0},
		"denied": {func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition("Denied", "True", "x"))
		}, 0},
		"issued":             {ready("True", "Issued"), 0},
		"failed":             {ready("False", "Failed"), 0},
		"finally denied":     {ready("False", "Denied"), 0},
		"approval withdrawn": {func(r *request) { r.Status.Conditions[0].Status = "False" }, 0},
		"of another issuer":  {func(r *request) { r.Spec.IssuerRef.Group = "cert-manager.io" }, 0},
		"another by now":     {func(r *request) { r.UID = "uid-2" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				r := honest()
				c.change(r)
				h.api.all[nameOf(r)] = r
				if shown := honest(); name == "another by now" || open(r) {
					h.api.feed.OnAdd(shown, true)
				} else {
					h.api.feed.OnAdd(r, true)
					synctest.Wait()
					if h.work.Len() > 0 {
						t.Error("it is remembered")
					}
					h.api.feed.OnAdd(shown, true) // an informer that is late
				}
				time.Sleep(time.Minute)
				if n := h.asked(); n != c.want && r.Spec.IssuerRef.Group != "cert-manager.io" {
					t.Errorf("%d certificates", n)
				}
			})
		})
	}
}

// A request that is deleted while it waits for its turn costs no certificate.
func TestDeletedRequestLosesItsPlace(t *testing.T) {
	inHouse(t, func(h *house) { h.limits = ratest.Unlimited; h.limits.Rate, h.limits.Burst = 1./60, 1 }, func(h *house) {
		h.api.put(nth("shop", 1))
		time.Sleep(time.Second)
		h.api.put(nth("shop", 2))
		time.Sleep(10 * time.Second)
		h.api.remove(nth("shop", 2))
		time.Sleep(10 * time.Minute)
		h.wantReady(nth("shop", 1), "Issued", 1)
	})
}

// A certificate that was issued and reached no request has a line of its own, however that came about.
func TestCertificateThatReachesNoRequestIsWithheld(t *testing.T) {
	failed := func(h *house) {
		r := honest()
		setReady("Failed", "by hand", nil)(r)
		h.api.put(r)
	}
	changed := func(h *house) {
		h.api.set(nil)
		h.api.mu.Lock()
		defer h.api.mu.Unlock()
		h.api.all[nameOf(honest())].Spec.Request = named("b.shop.apps.example.org")
	}
	for name, c := range map[string]struct {
		end  func(h *house)
		want int
	}{
		"deleted":        {func(h *house) { h.api.remove(honest()) }, 1},
		"failed":         {failed, 1},
		"changed":        {changed, 1},
		"end of session": {func(h *house) { h.stop() }, 1},
		"written":        {func(h *house) { h.api.set(nil) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var audit *ratest.Audit
			inHouse(t, nil, func(h *house) {
				audit = &h.audit
				h.api.put(honest())
				h.api.set(func(verb string, _ types.NamespacedName) error {
					if verb == "patch" && h.asked() > 0 {
						return errors.New("away")
					}
					return nil
				})
				time.Sleep(time.Minute)
				c.end(h)
				time.Sleep(2 * time.Minute)
			})
			if lines := audit.Lines(t, "withheld"); len(lines) != c.want {
				t.Errorf("%v", lines)
			}
		})
	}
}

// An account that may not write must not cost a certificate for each of a hundred requests.
func TestCertificatesAreNotRequestedThatCannotBeWritten(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.api.set(func(verb string, _ types.NamespacedName) error {
			if verb == "patch" && h.asked() > 0 {
				return apierrors.NewForbidden(cmapi.Resource("certificaterequests"), "req", errors.New("no rights"))
			}
			return nil
		})
		h.ca.Always(catest.Fault{Delay: time.Second}) // not all are issued at the moment of the first write
		for n := range 100 {
			r := nth("shop", n)
			setReady("Pending", "", nil)(r)
			h.api.put(r)
		}
		time.Sleep(4 * time.Minute)
		if n := h.asked(); n == 0 || n > 60 {
			t.Errorf("%d certificates in 4 minutes", n)
		}
		if shut := h.Shut(); len(shut) != 1 || shut[0].Signer != "ca" || !shut[0].Forbidden {
			t.Errorf("%+v", shut)
		}
		h.api.set(nil)
		time.Sleep(10 * time.Minute)
		if shut := h.Shut(); len(shut) > 0 || h.happened("ca issued") != 100 {
			t.Errorf("%+v, %v", shut, h.events)
		}
	})
}

// Nor must an API server that answers no write, such as one whose webhook hangs.
func TestCertificatesAreNotRequestedWhileWritesHang(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		h.api.set(func(verb string, _ types.NamespacedName) error {
			if verb == "patch" && h.asked() > 0 {
				time.Sleep(12 * time.Second) // the deadline is sooner
			}
			return nil
		})
		h.ca.Always(catest.Fault{Delay: time.Second}) // the first write fails after ten seconds
		for n := range 1500 {
			r := nth("shop", n)
			setReady("Pending", "", nil)(r)
			h.api.put(r)
		}
		time.Sleep(4 * time.Minute)
		if n, shut := h.asked(), h.Shut(); n == 0 || n > 750 || len(shut) != 1 {
			t.Errorf("%d certificates in 4 minutes, %+v", n, shut)
		}
	})
}

// A write whose reply was lost has not failed: it delays no other request.
func TestLostRepliesShutNoGate(t *testing.T) {
	for name, late := range map[string]bool{"the informer shows it": false, "the informer is late": true} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, nil, func(h *house) {
				h.cutReplies()
				feed := h.api.feed
				if late {
					h.api.follow(toolscache.ResourceEventHandlerFuncs{})
				}
				for n := range 100 {
					r := nth("shop", n)
					setReady("Pending", "", nil)(r)
					h.api.put(r)
					if late {
						feed.OnAdd(trimmed(r), false)
					}
				}
				time.Sleep(time.Minute)
				if shut := h.Shut(); len(shut) > 0 || h.asked() != 100 || h.happened("ca issued") != 100 {
					t.Errorf("%d certificates, %v, %+v", h.asked(), h.events, shut)
				}
				h.wantWithheld(0)
			})
		})
	}
}

// A request that is deleted and made anew between the read and the write is another one: it gets no
// certificate, not even an error, of the one before it.
func TestCertificateReachesNoOtherRequestOfItsName(t *testing.T) {
	inHouse(t, nil, func(h *house) {
		first, second := nth("shop", 1), nth("shop", 1)
		second.UID, second.Spec.Request = "another", named("b.shop.apps.example.org")
		for _, r := range []*request{first, second} {
			setReady("Pending", "", nil)(r)
		}
		replaced := false
		h.api.set(func(verb string, _ types.NamespacedName) error {
			if verb == "patch" && h.asked() > 0 && !replaced {
				replaced = true
				h.api.remove(first)
				h.api.put(second)
			}
			return nil
		})
		h.api.put(first)
		time.Sleep(time.Minute)
		h.wantReady(second, "Issued", 2)
		h.wantWithheld(1)
		h.api.mu.Lock()
		defer h.api.mu.Unlock()
		chain, err := pki.ParseCertificates(h.api.all[nameOf(second)].Status.Certificate)
		if err != nil || !slices.Equal(chain[0].DNSNames, []string{"b.shop.apps.example.org"}) {
			t.Errorf("%v: the certificate is for %v", err, chain[0].DNSNames)
		}
	})
}
