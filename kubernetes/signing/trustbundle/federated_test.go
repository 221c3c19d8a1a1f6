package trustbundle_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	partner       = "partner.example"
	partnerObject = object + "." + partner
	canarying     = "k8s.spiffe.io/canarying"
)

// endpoints have the roots of foreign trust domains.
type endpoints struct {
	mu    sync.Mutex
	roots map[string]*pki.Bundle
	begun map[string]*pki.Bundle // with which an endpoint is verified at first
}

func (e *endpoints) of(trustDomain string) (*pki.Bundle, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if roots := e.roots[trustDomain]; roots != nil {
		return roots, true
	}
	return e.begun[trustDomain], false
}

func (e *endpoints) publish(d *desk, trustDomain string, roots *pki.Bundle) {
	e.mu.Lock()
	e.roots[trustDomain] = roots
	e.mu.Unlock()
	d.ForeignChanged(signer, trustDomain)
}

// federated has the signer's bundle federated with these trust domains.
func (e *endpoints) federated(domains ...string) func(*trustbundle.Config) {
	e.roots = map[string]*pki.Bundle{}
	return func(c *trustbundle.Config) {
		c.Bundles[0].Labels = map[string]string{canarying: "live", trustbundle.WorkloadLabel: "example.org", trustbundle.PeerLabel: "example.org"}
		c.Bundles[0].Federated = trustbundle.Federated{TrustDomains: domains, Roots: e.of}
	}
}

// holdsForeign demands that the object of the partner is as it should be.
func (d *desk) holdsForeign(roots *pki.Bundle) {
	d.t.Helper()
	o := d.get(partnerObject)
	if o.Spec.TrustBundle != string(roots.PEM()) || o.Spec.SignerName != signer || o.Labels[owned.ManagedBy] != owned.Manager ||
		o.Labels[canarying] != "live" || o.Labels[trustbundle.WorkloadLabel] != "example.org" || o.Labels[trustbundle.PeerLabel] != partner {
		d.t.Fatalf("the object is %+v\n%s", o, &d.log)
	}
}

// left is an object that a former leader may have written.
func left(name, signer string, labels map[string]string, roots *pki.Bundle) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: string(roots.PEM())},
	}
}

func TestFederatedTrustDomainHasAnObjectOfItsOwn(t *testing.T) {
	var e endpoints
	inBubble(t, e.federated(partner, "other.example"), func(d *desk) {
		each, both := ratest.Bundles(t, 2)
		d.has("ca", each[0])
		d.start()
		if o := d.find(partnerObject); o != nil {
			t.Fatalf("without known roots there is %+v", o)
		}
		e.publish(d, partner, each[1])
		d.pass(2 * time.Second)
		d.holdsForeign(each[1])
		d.holds(each[0])
		if o := d.get(object); o.Labels[trustbundle.PeerLabel] != "example.org" {
			t.Errorf("labels of the own object: %v", o.Labels)
		}
		e.publish(d, partner, both)
		d.pass(2 * time.Second)
		d.holdsForeign(both)
		e.publish(d, partner, each[0]) // a root that the trust domain drops is not trusted any more
		d.pass(2 * time.Second)
		d.holdsForeign(each[0])
		d.remove(partnerObject)
		d.pass(3 * time.Second)
		d.holdsForeign(each[0])
		if got := d.confirmed("ca"); !got.Equal(each[0]) || len(d.written) != 1 {
			t.Errorf("confirmed: %v", d.written)
		}
	})
}

// An endpoint that is away changes nothing.
func TestRootsOfEarlierLeaderStayWhileTheEndpointIsAway(t *testing.T) {
	each, _ := ratest.Bundles(t, 2)
	var e endpoints
	old := left(partnerObject, signer, map[string]string{owned.ManagedBy: owned.Manager, trustbundle.WorkloadLabel: "former.example", trustbundle.PeerLabel: partner}, each[0])
	inBubble(t, e.federated(partner), func(d *desk) {
		if d.Foreign(signer, partner) != nil {
			t.Error("roots are known before the object was read")
		}
		e.begun = map[string]*pki.Bundle{partner: each[1]} // may be long out of date
		d.start()
		for range 2 {
			d.holdsForeign(each[0]) // for pods of the trust domain that is configured now
			if got := d.Foreign(signer, partner); !got.Equal(each[0]) {
				t.Errorf("known are %v", got.Fingerprints())
			}
			d.remove(partnerObject)
			d.pass(3 * time.Second)
		}
		e.publish(d, partner, each[1])
		d.pass(2 * time.Minute)
		d.holdsForeign(each[1])
	}, old)
}

// Workloads must trust no certificate of a trust domain that publishes an empty bundle (SPIFFE Trust Domain
// and Bundle, section 4.1.3), which an object cannot be. The next leader, whose endpoint is away, keeps that.
func TestTrustDomainThatRevokesAllRootsIsNotTrusted(t *testing.T) {
	root := certtest.Root(t)
	leaf := root.Leaf(t, time.Hour).Cert
	trusts := func(d *desk) bool {
		t.Helper()
		bundle, unusable, err := pki.UsableBundle([]byte(d.get(partnerObject).Spec.TrustBundle)) // as programs in pods read it
		if err != nil || len(unusable) > 0 {
			t.Fatalf("the object cannot be used: %v, %v", unusable, err)
		}
		_, err = leaf.Verify(x509.VerifyOptions{Roots: bundle.Pool(), CurrentTime: leaf.NotBefore.Add(time.Minute)})
		return err == nil
	}
	var written *certificatesv1.ClusterTrustBundle
	var e endpoints
	inBubble(t, e.federated(partner), func(d *desk) {
		e.publish(d, partner, pki.NewBundle(root.Cert))
		d.start()
		if !trusts(d) {
			t.Error("not trusted with its root")
		}
		e.publish(d, partner, pki.NewBundle())
		d.pass(2 * time.Second)
		if trusts(d) {
			t.Error("trusted after it has revoked its root")
		}
		written = d.get(partnerObject)
	})
	var next endpoints
	inBubble(t, next.federated(partner), func(d *desk) {
		next.begun = map[string]*pki.Bundle{partner: pki.NewBundle(root.Cert)} // may be long out of date
		d.start()
		if trusts(d) {
			t.Error("trusted by the next leader")
		}
		next.publish(d, partner, pki.NewBundle(root.Cert))
		d.pass(2 * time.Minute)
		d.holdsForeign(pki.NewBundle(root.Cert))
	}, written)
}

// The trust anchors of a foreign trust domain need not be self-signed, and another client may have added
// a leaf.
func TestAnyTrustAnchorsOfEarlierLeaderStay(t *testing.T) {
	root := certtest.Root(t)
	between := root.Issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "between"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	})
	anchors, initial := pki.NewBundle(between.Cert), pki.NewBundle(root.Cert)
	for name, added := range map[string]*pki.Bundle{"anchors": anchors, "with a leaf": anchors.Union(pki.NewBundle(root.Leaf(t, time.Hour).Cert))} {
		t.Run(name, func(t *testing.T) {
			var e endpoints
			inBubble(t, e.federated(partner), func(d *desk) {
				e.begun = map[string]*pki.Bundle{partner: initial}
				d.start()
				d.holdsForeign(anchors)
			}, left(partnerObject, signer, owned.Labels(), added))
		})
	}
}

func TestInitialRootsCountWhereThereAreNoOthers(t *testing.T) {
	each, _ := ratest.Bundles(t, 2)
	var e endpoints
	inBubble(t, e.federated(partner), func(d *desk) {
		e.begun = map[string]*pki.Bundle{partner: each[0]}
		d.start()
		d.holdsForeign(each[0])
		e.publish(d, partner, each[1])
		d.pass(2 * time.Second)
		d.holdsForeign(each[1])
	})
}

// What another client wrote below that name says nothing about the trust domain.
func TestForeignObjectGivesNoRoots(t *testing.T) {
	each, _ := ratest.Bundles(t, 2)
	for name, o := range map[string]*certificatesv1.ClusterTrustBundle{
		"not ours":       left(partnerObject, signer, nil, each[0]),
		"other signer's": left(partnerObject, "example.com/other", owned.Labels(), each[0]),
	} {
		t.Run(name, func(t *testing.T) {
			var e endpoints
			inBubble(t, e.federated(partner), func(d *desk) {
				d.has("ca", each[1])
				d.start()
				if got := d.Foreign(signer, partner); got.Len() > 0 {
					t.Errorf("known are %v", got.Fingerprints())
				}
				e.publish(d, partner, each[1])
				d.pass(2 * time.Minute)
				if got := d.get(partnerObject).Spec.TrustBundle; got != string(each[0].PEM()) {
					t.Errorf("it was written: %s", got)
				}
				if s := d.Status()[1]; s.TrustDomain != partner || s.Error == "" {
					t.Errorf("the status shows %+v", s)
				}
				if err := d.Ready(); err != nil {
					t.Errorf("a foreign trust domain keeps the signer from being ready: %v", err)
				}
			}, o)
		})
	}
}

func TestObjectOfAFormerFederationIsDeleted(t *testing.T) {
	each, _ := ratest.Bundles(t, 1)
	var e endpoints
	stay := []*certificatesv1.ClusterTrustBundle{
		left(partnerObject, signer, owned.Labels(), each[0]),
		left(object+".not-ours.example", signer, nil, each[0]),
		left(object+"-of-another.example", signer, owned.Labels(), each[0]),
		left("example.com:pods:beside.former.example", signer, owned.Labels(), each[0]),
		left("example.com:other:bundle.former.example", "example.com/other", owned.Labels(), each[0]),
	}
	const former = object + ".former.example"
	var lost atomic.Bool
	lost.Store(true)
	configured := func(c *trustbundle.Config) {
		e.federated(partner)(c)
		c.Held = func() error {
			if lost.Load() {
				return errors.New("this replica does not lead")
			}
			return nil
		}
	}
	inBubble(t, configured, func(d *desk) {
		d.has("ca", each[0])
		d.start()
		d.pass(10 * time.Minute)
		if d.find(former) == nil {
			t.Fatal("deleted without the lease")
		}
		lost.Store(false)
		var away atomic.Bool
		away.Store(true)
		d.server.Set(func() {
			before := d.server.Before
			d.server.Before = func(c *kubetest.Call) error {
				if c.Verb == "delete" && away.Load() {
					return errAway
				}
				return before(c)
			}
		})
		d.pass(10 * time.Minute)
		all := d.Status()
		if s := all[len(all)-1]; s.TrustDomain != "*" || !strings.Contains(s.Error, former) || !strings.Contains(s.Error, errAway.Error()) {
			t.Errorf("the status shows %+v", s)
		}
		if n := d.lines("cannot delete"); n < 5 || n > 21 || d.Ready() != nil {
			t.Errorf("logged %d times in 20 minutes, ready: %v", n, d.Ready())
		}
		away.Store(false)
		d.pass(2 * time.Minute)
		if d.find(former) != nil {
			t.Errorf("it is still there\n%s", &d.log)
		}
		for _, o := range stay {
			if d.find(o.Name) == nil {
				t.Errorf("%s is gone", o.Name)
			}
		}
		if all := d.Status(); all[len(all)-1].TrustDomain != partner {
			t.Errorf("the status shows %+v", all)
		}
	}, append(stay, left(former, signer, owned.Labels(), each[0]))...)
}

func TestFederationThatIsRefused(t *testing.T) {
	var e endpoints
	own := map[string]string{trustbundle.WorkloadLabel: "example.org", trustbundle.PeerLabel: "example.org"}
	for want, f := range map[string]struct {
		labels  map[string]string
		domains []string
	}{
		"labels":        {map[string]string{trustbundle.WorkloadLabel: "example.org"}, []string{partner}},
		"twice":         {own, []string{partner, partner}},
		"there twice":   {own, []string{"example.org"}},
		"named after":   {own, []string{"with_underscore.example"}},
		"1 to 63":       {own, []string{strings.Repeat("a", 64)}},
		"trust domain":  {own, []string{"spiffe://partner.example"}},
		"100 are":       {own, make([]string, 101)},
		"example.org\"": {own, []string{partner, "example.org"}},
	} {
		_, err := trustbundle.New(trustbundle.Config{
			Client: newServer().Client(), Roots: func(string) *pki.Bundle { return nil },
			Bundles: []trustbundle.Bundle{{Signer: signer, Authority: "ca", Labels: f.labels, Federated: trustbundle.Federated{TrustDomains: f.domains, Roots: e.of}}},
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
