package guard_test

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("connection refused")

// cluster is an API server, and the log of what watches it.
type cluster struct {
	*kubetest.Fake
	log logtest.Log
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{Fake: kubetest.NewFake()}
	for _, o := range objects {
		c.Put(o)
	}
	return c
}

// put writes the ConfigMap with the client CAs.
func (c *cluster) put(data map[string]string) { c.Put(clientCAs(data)) }

func clientCAs(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, Data: data}
}

func bundle(certs ...*x509.Certificate) *pki.Bundle { return pki.NewBundle(certs...) }

func pemOf(certs ...*x509.Certificate) string { return string(pki.EncodeCertificates(certs)) }

// run has something run until the bubble ends.
func run(t *testing.T, run func(context.Context)) {
	t.Cleanup(background.Run(run))
	pass(time.Second)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newClientCA(t *testing.T, name string, c *cluster) *guard.ClientCA {
	t.Helper()
	g, err := guard.NewClientCA(guard.ClientCAConfig{Cluster: name, Client: c.Client(), Log: c.log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// sameKey is another root with the key of one.
func sameKey(t *testing.T, of *certtest.Pair) *x509.Certificate {
	t.Helper()
	other := certtest.Root(t)
	template := *other.Cert
	return resign(t, &template, of, of)
}

// resign makes a certificate for the key of one pair, signed by another.
func resign(t *testing.T, template *x509.Certificate, key, by *certtest.Pair) *x509.Certificate {
	t.Helper()
	return by.Sign(t, template, key.Key.Public())
}

func TestClientCAsAreRefused(t *testing.T) {
	ours, cluster, proxy, root := certtest.Root(t), certtest.Root(t), certtest.Root(t), certtest.Root(t)
	below := root.Issue(t, certtest.Root(t).Cert) // an intermediate
	crossed := resign(t, cluster.Cert, cluster, root)
	leaf := below.Leaf(t, time.Hour)
	data := map[string]string{
		"client-ca-file":               "# the cluster's\n" + pemOf(cluster.Cert, below.Cert),
		"requestheader-client-ca-file": "-----BEGIN OTHER-----\nAAAA\n-----END OTHER-----\n" + pemOf(proxy.Cert),
		"other":                        pemOf(ours.Cert),
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(clientCAs(data))
		g := newClientCA(t, "home", c)
		run(t, g.Run)
		for name, test := range map[string]struct {
			roots   *pki.Bundle
			refused bool
		}{
			"another":               {bundle(ours.Cert), false},
			"none":                  {nil, false},
			"the client CA":         {bundle(cluster.Cert), true},
			"among others":          {bundle(ours.Cert, cluster.Cert), true},
			"the front proxy's":     {bundle(proxy.Cert), true},
			"its key, anew":         {bundle(sameKey(t, cluster)), true},
			"its key, crossed":      {bundle(crossed), true},
			"above a client CA":     {bundle(root.Cert), false}, // unless it signs below that: see the chain
			"an intermediate's own": {bundle(below.Cert), true},
		} {
			err := g.Check("ca", test.roots)
			if (err != nil) != test.refused || err != nil && !errors.Is(err, ca.ErrNotConfigured) {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil && (!strings.Contains(err.Error(), `authority "ca" is a client CA of cluster "home" and could sign an administrator`) || len(err.Error()) > 400) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := g.CheckChain("ca", []byte(pemOf(leaf.Cert, below.Cert))); !errors.Is(err, ca.ErrNotConfigured) {
			t.Errorf("a leaf below an intermediate that is a client CA: %v", err)
		}
		if err := g.CheckChain("ca", []byte(pemOf(leaf.Cert))); err != nil {
			t.Errorf("a leaf alone: %v", err)
		}
		if err := g.CheckChain("ca", []byte("none")); err == nil {
			t.Error("a chain that cannot be read passes")
		}
	})
}

// What cannot be read is not a no: nothing passes before, and what is known stays.
func TestClientCAsThatCannotBeRead(t *testing.T) {
	ours, theirs := certtest.Root(t), certtest.Root(t)
	good := map[string]string{"client-ca-file": pemOf(theirs.Cert)}
	broken := string(pki.EncodeCertificates([]*x509.Certificate{{Raw: []byte("none")}}))
	for name, spoil := range map[string]func(c *cluster){
		"away":   func(c *cluster) { c.Fail(errAway) },
		"broken": func(c *cluster) { c.put(map[string]string{"client-ca-file": broken}) },
		"huge": func(c *cluster) {
			c.put(map[string]string{"client-ca-file": strings.Repeat("x", 1<<20+1)})
		},
		"deleted": func(c *cluster) {
			c.Remove("configmaps", "kube-system", "extension-apiserver-authentication")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(clientCAs(good))
				spoil(c)
				g := newClientCA(t, "home", c)
				run(t, g.Run)
				pass(time.Hour)
				if err := g.Check("ca", bundle(ours.Cert)); !errors.Is(err, ca.ErrUnavailable) || g.Ready() == nil {
					t.Errorf("never read: %v", err)
				}
				if n := c.Called("get", ""); n < 40 || n > 80 {
					t.Errorf("asked %d times in an hour", n)
				}
				c.Fail(nil)
				c.put(good)
				pass(2 * time.Minute)
				if err := g.Check("ca", bundle(ours.Cert)); err != nil {
					t.Errorf("read: %v", err)
				}
				spoil(c)
				pass(time.Hour)
				if err := g.Check("ca", bundle(ours.Cert)); err != nil {
					t.Errorf("known: %v", err)
				}
				if err := g.Check("ca", bundle(theirs.Cert)); !errors.Is(err, ca.ErrNotConfigured) {
					t.Errorf("known to be a client CA: %v", err)
				}
			})
		})
	}
}

// A rotated kubeconfig brings another client of the same cluster: what was known stays until that
// has looked, and no longer.
func TestFormerKnowledgeHoldsUntilTheFirstLook(t *testing.T) {
	theirs, added := certtest.Root(t), certtest.Root(t)
	synctest.Test(t, func(t *testing.T) {
		before, after := newCluster(clientCAs(map[string]string{"client-ca-file": pemOf(theirs.Cert)})), newCluster(clientCAs(nil))
		former := newClientCA(t, "home", before)
		run(t, former.Run)
		after.Fail(errAway)
		g, err := guard.NewClientCA(guard.ClientCAConfig{Cluster: "home", Client: after.Client(), Former: former, Log: after.log.Logger()})
		if err != nil {
			t.Fatal(err)
		}
		run(t, g.Run)
		if err := g.Check("ca", bundle(theirs.Cert)); !errors.Is(err, ca.ErrNotConfigured) {
			t.Errorf("before the first look: %v", err)
		}
		if err := g.Check("ca", bundle(added.Cert)); err != nil {
			t.Errorf("before the first look: %v", err)
		}
		after.Fail(nil)
		after.put(map[string]string{"client-ca-file": pemOf(added.Cert)})
		pass(2 * time.Minute)
		if err := g.Check("ca", bundle(theirs.Cert)); err != nil {
			t.Errorf("after the first look: %v", err)
		}
		if err := g.Check("ca", bundle(added.Cert)); !errors.Is(err, ca.ErrNotConfigured) {
			t.Errorf("after the first look: %v", err)
		}
	})
}

func TestChangedClientCAsAreNoticed(t *testing.T) {
	theirs := certtest.Root(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(clientCAs(nil)) // an API server without client certificates
		g := newClientCA(t, "home", c)
		run(t, g.Run)
		if err := g.Check("ca", bundle(theirs.Cert)); err != nil {
			t.Fatal(err)
		}
		c.put(map[string]string{"client-ca-file": pemOf(theirs.Cert)})
		pass(6 * time.Minute)
		if err := g.Check("ca", bundle(theirs.Cert)); !errors.Is(err, ca.ErrNotConfigured) {
			t.Error(err)
		}
		if n := c.Called("get", ""); n > 3 {
			t.Errorf("asked %d times in 6 minutes", n)
		}
	})
}

func TestGuardSettings(t *testing.T) {
	if _, err := guard.NewClientCA(guard.ClientCAConfig{Client: kubetest.NewFake().Client()}); err == nil {
		t.Error("a cluster without a name")
	}
	if _, err := guard.NewAdmission(guard.AdmissionConfig{}); err == nil {
		t.Error("no client")
	}
}

// A rotated kubeconfig makes nothing wait for an API server that hangs.
func TestWhatRunsAfterTheFirstLookGoesByFormerKnowledge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former := newClientCA(t, "home", newCluster(clientCAs(nil)))
		run(t, former.Run)
		g, err := guard.NewClientCA(guard.ClientCAConfig{Cluster: "home", Client: newCluster().Client(), Former: former})
		if err != nil {
			t.Fatal(err)
		}
		runs := false
		run(t, g.After(func(context.Context) { runs = true })) // beside a look that does not end
		if !runs {
			t.Error("it waits for a look, though the client CAs are known")
		}
	})
}

// An API server that refuses the first look must not keep what runs after it from doing so.
func TestWhatRunsAfterTheFirstLook(t *testing.T) {
	for name, objects := range map[string][]runtime.Object{"client CAs": {clientCAs(nil)}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newClientCA(t, "home", newCluster(objects...))
				runs := false
				run(t, g.After(func(context.Context) { runs = true }))
				if runs {
					t.Error("it ran before the first look")
				}
				run(t, g.Run)
				if !runs {
					t.Error("it did not run after the first look")
				}
			})
		})
	}
}
