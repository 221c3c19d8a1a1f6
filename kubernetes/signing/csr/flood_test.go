package csr_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// account is the request of another service account of the namespace.
func (c *cluster) account(n int) *request {
	c.t.Helper()
	name := fmt.Sprint("web-", n)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "account-uid"}}
	c.api.Put(account)
	r := honest()
	r.Name, r.UID, r.Spec.Extra, r.Spec.Username = name, types.UID(name), nil, "system:serviceaccount:shop:"+name
	uri, _ := url.Parse("spiffe://example.org/ns/shop/sa/" + name)
	r.Spec.Request = csrOf(pki.ECDSAP256, &x509.CertificateRequest{URIs: []*url.URL{uri}})
	return r
}

func approve(r *request) {
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Reason: "Admin"}}
}

// janes is the nth request of a user.
func janes(n int) *request {
	r := honest()
	approve(r)
	r.Name, r.UID = fmt.Sprint("jane-", n), types.UID(fmt.Sprint("jane-", n))
	r.Spec.Username, r.Spec.Groups, r.Spec.UID, r.Spec.Extra = "jane", []string{"system:authenticated"}, "", nil
	r.Spec.Request = csrOf(pki.ECDSAP256, &x509.CertificateRequest{DNSNames: []string{"jane.example.org"}})
	return r
}

// A hundred requests, and an account that may not sign: that must not cost a hundred certificates.
func TestCertificatesAreNotAskedForThatCannotBeDelivered(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	const many = 100
	inCluster(t, byHand, func(c *cluster) {
		end := c.api.FailOn("update", requests, apierrors.NewForbidden(certificatesv1.Resource(requests), "req", errors.New("no rights")))
		for n := range many {
			r := c.account(n)
			approve(r)
			c.create(r)
		}
		pass(4 * time.Minute)
		if n := c.asked(); n == 0 || n > 30 {
			t.Errorf("%d certificates in 4 minutes, and none could be delivered", n)
		}
		if shut := c.door.Shut(); len(shut) != 1 || shut[0].Signer != signer || !shut[0].Forbidden {
			t.Errorf("the status is %+v", shut)
		}
		end()
		pass(10 * time.Minute)
		if shut := c.door.Shut(); len(shut) > 0 {
			t.Errorf("the status is still %+v", shut)
		}
		if c.happened("issued") != many || c.asked() != many {
			t.Errorf("events %v, %d asked", c.events, c.asked())
		}
	})
}

// Nor must it stop those whose writes succeed.
func TestWritesThatFailStopTheirRequesterAlone(t *testing.T) {
	inCluster(t, func(c *cluster) {
		byHand(c)
		c.api.Before = func(call *kubetest.Call) error {
			if call.Subresource == "status" && strings.HasPrefix(call.Name, "jane-") {
				return apierrors.NewRequestEntityTooLargeError("too large")
			}
			return c.admit(call)
		}
	}, func(c *cluster) {
		for n := range 5 {
			c.create(janes(n))
		}
		if n := c.asked(); n != 2 {
			t.Errorf("%d certificates for jane, and none could be delivered", n)
		}
		r := honest()
		approve(r)
		c.create(r)
		c.want("Approved issued")
	})
}

func TestFloodOfOneRequesterDelaysNoOther(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	slow := func(c *cluster) {
		c.api.Before = func(call *kubetest.Call) error {
			if call.Verb == "get" && strings.HasPrefix(call.Name, "jane-") {
				select {
				case <-time.After(5 * time.Second):
				case <-call.Context.Done():
					return call.Context.Err()
				}
			}
			return c.admit(call)
		}
	}
	inCluster(t, slow, func(c *cluster) {
		for n := range 500 {
			c.create(janes(n))
		}
		c.create(honest())
		pass(time.Second)
		c.want("Approved issued")
	})
}
