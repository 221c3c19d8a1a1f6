package trustbundle_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestRootsArePublishedAndConfirmed(t *testing.T) {
	inBubble(t, nil, func(d *desk) {
		each, both := ratest.Bundles(t, 2)
		d.start()
		if found := d.find(object); found != nil {
			t.Fatalf("with no roots known there is %+v", found)
		}
		if err := d.Ready(); err != nil {
			t.Errorf("no roots are known, and %v", err)
		}
		d.has("ca", each[0])
		d.pass(2 * time.Second)
		d.holds(each[0])
		d.knows("ca", both)
		if d.Ready() == nil { // the keeper has no notice yet
			t.Error("ready with a root that is not published")
		}
		d.has("ca", both)
		d.pass(2 * time.Second)
		d.holds(both)
		if got := d.confirmed("ca"); !got.Equal(both) {
			t.Errorf("confirmed %v", got.Fingerprints())
		}
		d.has("ca", each[1])
		d.pass(2 * time.Second)
		d.holds(each[1])
	})
}

// A pod's volume selects bundles by these labels. One that another client changes is restored, one of
// SPIFFE that is no longer configured goes, and those of others stay.
func TestObjectHasItsLabels(t *testing.T) {
	const live, domain, old = "k8s.spiffe.io/canarying", "k8s.spiffe.io/workload-trust-domain", "k8s.spiffe.io/peer-trust-domain"
	labelled := func(c *trustbundle.Config) {
		c.Bundles[0].Labels = map[string]string{live: "live", domain: "example.org"}
	}
	before := foreign(map[string]string{owned.ManagedBy: owned.Manager, old: "partner.example", "team": "a"})
	inBubble(t, labelled, func(d *desk) {
		each, _ := ratest.Bundles(t, 1)
		d.knows("ca", each[0])
		d.start()
		for range 2 {
			d.holds(each[0])
			o := d.get(object)
			if _, kept := o.Labels[old]; kept || o.Labels[live] != "live" || o.Labels[domain] != "example.org" || o.Labels["team"] != "a" {
				t.Errorf("labels %v", o.Labels)
			}
			changed := o.DeepCopy()
			changed.Labels[domain] = "other.example"
			d.put(changed)
			d.pass(2 * time.Minute)
		}
	}, before)
}

// A leader that was stopped and wakes up has old roots, and a successor.
func TestNothingIsWrittenWithoutTheLease(t *testing.T) {
	var lost atomic.Bool
	held := func(c *trustbundle.Config) {
		c.Held = func() error {
			if lost.Load() {
				return errors.New("this replica does not lead")
			}
			return nil
		}
	}
	inBubble(t, held, func(d *desk) {
		each, _ := ratest.Bundles(t, 2)
		lost.Store(true)
		d.has("ca", each[0])
		d.start()
		d.pass(10 * time.Minute)
		if found := d.find(object); found != nil || d.Ready() == nil {
			t.Errorf("created without the lease: %+v", found)
		}
		lost.Store(false)
		d.pass(2 * time.Minute)
		d.holds(each[0])
		lost.Store(true)
		d.has("ca", each[1])
		d.pass(10 * time.Minute)
		if found := d.get(object); found.Spec.TrustBundle != string(each[0].PEM()) {
			t.Errorf("updated without the lease: %+v", found)
		}
	})
}

func TestAuthorityWithoutRootsChangesNothing(t *testing.T) {
	for name, none := range map[string]*pki.Bundle{"nil": nil, "empty": pki.NewBundle()} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(d *desk) {
				each, _ := ratest.Bundles(t, 1)
				d.has("ca", each[0])
				d.start()
				d.has("ca", none)
				d.pass(time.Hour)
				d.holds(each[0])
				d.remove(object)
				d.pass(5 * time.Second)
				d.holds(each[0])
			})
		})
	}
}

func TestWhatOthersDoIsPutRight(t *testing.T) {
	for name, harm := range map[string]func(d *desk, o *certificatesv1.ClusterTrustBundle){
		"edit":     func(d *desk, o *certificatesv1.ClusterTrustBundle) { o.Spec.TrustBundle = "theirs"; d.put(o) },
		"no label": func(d *desk, o *certificatesv1.ClusterTrustBundle) { o.Labels = nil; d.put(o) },
		"both":     func(d *desk, o *certificatesv1.ClusterTrustBundle) { o.Labels, o.Spec.TrustBundle = nil, ""; d.put(o) },
		"deletion": func(d *desk, o *certificatesv1.ClusterTrustBundle) {
			d.remove(o.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(d *desk) {
				each, _ := ratest.Bundles(t, 1)
				d.has("ca", each[0])
				d.start()
				d.pass(time.Minute)
				harm(d, d.get(object))
				d.pass(3 * time.Second)
				d.holds(each[0])
				if n := d.lines("restored a trust"); n != 1 {
					t.Errorf("logged %d times: %s", n, &d.log)
				}
			})
		})
	}
}

// What is put right at once was hardly gone. Otherwise who waits for a root to arrive must know.
func TestRemovedRootsAreNotConfirmed(t *testing.T) {
	for name, remove := range map[string]func(d *desk, left *pki.Bundle){
		"edit": func(d *desk, left *pki.Bundle) {
			o := d.get(object)
			o.Spec.TrustBundle = string(left.PEM())
			d.put(o)
		},
		"deletion": func(d *desk, _ *pki.Bundle) {
			d.remove(object)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(d *desk) {
				each, both := ratest.Bundles(t, 2)
				d.has("ca", both)
				d.start()
				d.forget()
				remove(d, each[0])
				d.pass(5 * time.Second)
				if got := d.confirmed("ca"); !got.Equal(both) {
					t.Errorf("it was put right, and confirmed are %v", got.Fingerprints())
				}
				d.server.Set(func() { d.server.writeErr = errAway })
				remove(d, each[0])
				d.pass(10 * time.Second)
				if got := d.confirmed("ca"); got.Contains(each[1].Certificates()[0]) {
					t.Errorf("it cannot be put right, and confirmed are %v", got.Fingerprints())
				}
				if s := d.Status()[0]; s.Error == "" || len(s.Roots) == 2 {
					t.Errorf("the status shows %+v", s)
				}
				d.server.Set(func() { d.server.err, d.server.writeErr = errAway, nil })
				d.forget()
				d.pass(10 * time.Minute)
				if got := d.confirmed("ca"); got != nil {
					t.Errorf("the state is unknown, and confirmed are %v", got.Fingerprints())
				}
				d.server.Set(func() { d.server.err = nil })
				d.pass(2 * time.Minute)
				if got := d.confirmed("ca"); !got.Equal(both) {
					t.Errorf("it is put right, and confirmed are %v", got.Fingerprints())
				}
			})
		})
	}
}

// A cluster that joins may have had the bundle of another time for hours.
func TestOldBundleOfAClusterThatJoinsIsConfirmedFirst(t *testing.T) {
	each, both := ratest.Bundles(t, 2)
	old := foreign(map[string]string{owned.ManagedBy: owned.Manager})
	old.Spec.TrustBundle = string(each[0].PEM())
	inBubble(t, nil, func(d *desk) {
		d.has("ca", both)
		d.start()
		if got := d.heard; len(got) < 2 || !got[0].Equal(each[0]) || !got[len(got)-1].Equal(both) {
			t.Errorf("it was notified %d times", len(got))
		}
	}, old)
}

// Another writer that never gives up must not have us write, or log, without end.
func TestFightIsSlow(t *testing.T) {
	inBubble(t, nil, func(d *desk) {
		each, both := ratest.Bundles(t, 2)
		d.has("ca", each[0])
		d.start()
		d.server.Set(func() {
			d.server.after = func(o *certificatesv1.ClusterTrustBundle) { o.Spec.TrustBundle = "theirs"; d.put(o) }
		})
		o := d.get(object)
		o.Spec.TrustBundle = "theirs"
		d.put(o)
		d.pass(time.Hour)
		if _, writes := d.server.counts(); writes < 40 || writes > 80 {
			t.Errorf("%d writes in an hour", writes)
		}
		if n := d.lines("restored a trust"); n < 30 || n > 61 {
			t.Errorf("logged %d times in an hour", n)
		}
		if n := d.lines("another client keeps writing or deleting a trust bundle"); n != 1 {
			t.Errorf("the dispute is logged %d times", n)
		}
		_, before := d.server.counts()
		d.has("ca", both) // our own roots do not wait for that
		d.pass(3 * time.Second)
		// One more if the dispute's own next write falls into these seconds.
		if _, writes := d.server.counts(); writes < before+1 || writes > before+2 || !d.confirmed("ca").Equal(both) {
			t.Errorf("%d writes, confirmed %v", writes-before, d.confirmed("ca").Fingerprints())
		}
		d.server.Set(func() { d.server.after = nil })
		d.pass(2 * time.Minute)
		d.holds(both)
	})
}

func TestFloodOfEventsCostsLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inBubble(t, nil, func(d *desk) {
		each, _ := ratest.Bundles(t, 1)
		d.has("ca", each[0])
		d.start()
		o := d.get(object)
		for i := range 600 {
			o.Annotations = map[string]string{"n": fmt.Sprint(i)}
			d.put(o)
			d.pass(100 * time.Millisecond)
		}
		if gets, writes := d.server.counts(); gets > 70 || writes != 1 {
			t.Errorf("%d reads and %d writes in a minute", gets, writes)
		}
	})
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	for name, o := range map[string]*certificatesv1.ClusterTrustBundle{
		"no label":    foreign(nil),
		"other label": foreign(map[string]string{owned.ManagedBy: "Helm"}),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(d *desk) {
				each, _ := ratest.Bundles(t, 1)
				d.has("ca", each[0])
				d.start()
				d.pass(time.Hour)
				if got := d.get(object).Spec.TrustBundle; got != "theirs" {
					t.Errorf("it holds %q", got)
				}
				if err := d.Ready(); err == nil || !strings.Contains(err.Error(), "is not ours") || !strings.Contains(err.Error(), object) {
					t.Errorf("ready: %v", err)
				}
				if n := d.lines("is not ours"); n < 10 || n > 61 {
					t.Errorf("logged %d times in an hour", n)
				}
				if d.confirmed("ca").Len() > 0 {
					t.Error("confirmed")
				}
				d.remove(object)
				d.pass(2 * time.Minute)
				d.holds(each[0])
			}, o)
		})
	}
}

func TestForeignObjectIsAdoptedIfAllowed(t *testing.T) {
	adopt := func(c *trustbundle.Config) { c.Bundles[0].Adopt = true }
	inBubble(t, adopt, func(d *desk) {
		each, _ := ratest.Bundles(t, 1)
		d.has("ca", each[0])
		d.start()
		d.holds(each[0])
		if o := d.get(object); o.UID != "foreign" || o.Labels["team"] != "a" {
			t.Errorf("it was made anew: %+v", o)
		}
	}, foreign(map[string]string{"team": "a"}))
}

// Pods mount the object by the name that Istio's charts have.
func TestBundleOfAMeshHasTheFurtherRoots(t *testing.T) {
	each, both := ratest.Bundles(t, 2)
	ofMesh := func(c *trustbundle.Config) {
		c.Bundles[0] = trustbundle.Bundle{Signer: "istio.io/istiod-ca", Name: "istio.io:istiod-ca:root-cert", Authority: "ca", Further: each[1]}
	}
	inBubble(t, ofMesh, func(d *desk) {
		d.has("ca", each[0])
		d.start()
		o := d.get("istio.io:istiod-ca:root-cert")
		if got, err := pki.ParseBundle([]byte(o.Spec.TrustBundle)); err != nil || !got.Equal(both) || o.Spec.SignerName != "istio.io/istiod-ca" {
			t.Errorf("it is %+v, %v", o, err)
		}
		if err := d.Ready(); err != nil || !d.confirmed("ca").Equal(each[0]) {
			t.Errorf("ready: %v, confirmed %v", err, d.confirmed("ca").Fingerprints())
		}
	})
}

// What an earlier leader published for an authority that is away now stays.
func TestObjectOfEarlierRunIsOurs(t *testing.T) {
	earlier := foreign(map[string]string{owned.ManagedBy: owned.Manager})
	inBubble(t, nil, func(d *desk) {
		d.start()
		d.pass(time.Hour)
		if got := d.get(object).Spec.TrustBundle; got != "theirs" {
			t.Errorf("an authority that is away emptied it: %q", got)
		}
		each, _ := ratest.Bundles(t, 1)
		d.has("ca", each[0])
		d.pass(2 * time.Second)
		d.holds(each[0])
		if d.lines("restored a trust") != 0 {
			t.Error("a planned change is logged as a repair")
		}
	}, earlier)
}

func TestServerThatIsAwayIsAskedAgain(t *testing.T) {
	for name, away := range map[string]func(s *server){
		"refuses":   func(s *server) { s.err = errAway },
		"hangs":     func(s *server) { s.hang = true },
		"forbids":   func(s *server) { s.err = apierrors.NewForbidden(schema.GroupResource{}, object, errAway) },
		"conflicts": func(s *server) { s.err = apierrors.NewConflict(schema.GroupResource{}, object, errAway) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(d *desk) {
				each, both := ratest.Bundles(t, 2)
				d.server.Set(func() { away(d.server) })
				d.has("ca", each[0])
				d.start()
				d.pass(time.Hour)
				if err := d.Ready(); err == nil || d.confirmed("ca").Len() > 0 {
					t.Errorf("ready: %v", err)
				}
				if gets, _ := d.server.counts(); gets < 30 || gets > 80 {
					t.Errorf("asked %d times in an hour", gets)
				}
				if n := d.lines("cannot publish"); n < 30 || n > 61 {
					t.Errorf("logged %d times in an hour", n)
				}
				d.server.Set(func() { d.server.err, d.server.hang = nil, false })
				d.has("ca", both)
				d.pass(2 * time.Minute)
				d.holds(both)
			})
		})
	}
}

func TestShutdownInterruptsCall(t *testing.T) {
	inBubble(t, nil, func(d *desk) {
		each, _ := ratest.Bundles(t, 1)
		d.server.Set(func() { d.server.hang = true })
		d.has("ca", each[0])
		d.start()
		before := time.Now()
		d.end()
		if took := time.Since(before); took > 0 {
			t.Errorf("took %s", took)
		}
		if d.lines("cannot publish") > 0 {
			t.Errorf("the end is logged as a fault: %s", &d.log)
		}
		d.server.Set(func() { d.server.hang = false })
		d.start() // the next term
		d.holds(each[0])
	})
}

func TestTooManyRootsAreRefused(t *testing.T) {
	inBubble(t, nil, func(d *desk) {
		each, _ := ratest.Bundles(t, 1)
		d.has("ca", each[0])
		d.start()
		d.has("ca", ratest.HugeBundle(t))
		d.pass(time.Minute)
		if err := d.Ready(); err == nil || !strings.Contains(err.Error(), "the API server takes 1048576") {
			t.Errorf("ready: %v", err)
		}
		if got := d.get(object).Spec.TrustBundle; got != string(each[0].PEM()) {
			t.Error("it was written")
		}
	})
}

func TestAlteredWriteIsNotConfirmed(t *testing.T) {
	inBubble(t, nil, func(d *desk) {
		each, _ := ratest.Bundles(t, 1)
		d.server.Set(func() {
			d.server.alter = func(o *certificatesv1.ClusterTrustBundle) { o.Spec.TrustBundle = "altered" }
		})
		d.has("ca", each[0])
		d.start()
		d.pass(time.Minute)
		if err := d.Ready(); err == nil || !strings.Contains(err.Error(), "webhook") || d.confirmed("ca").Len() > 0 {
			t.Errorf("ready: %v", err)
		}
	})
}

func TestRootIsConfirmedWhenAllBundlesHoldIt(t *testing.T) {
	two := func(c *trustbundle.Config) {
		c.Bundles = append(c.Bundles, trustbundle.Bundle{Signer: "example.com/other", Authority: "ca"})
	}
	const other = "example.com:other:bundle"
	inBubble(t, two, func(d *desk) {
		each, _ := ratest.Bundles(t, 1)
		blocked := foreign(nil)
		blocked.Name, blocked.Spec.SignerName = other, "example.com/other"
		d.put(blocked)
		d.has("ca", each[0])
		d.start()
		if d.get(object).Spec.TrustBundle == "" || d.confirmed("ca").Len() > 0 {
			t.Fatal("confirmed with one of two")
		}
		d.remove(other)
		d.pass(2 * time.Minute)
		if !d.confirmed("ca").Equal(each[0]) {
			t.Error("not confirmed with both")
		}
		if s := d.Status(); len(s) != 2 || s[1].Object != other || s[1].Error != "" || s[1].Roots[0] != each[0].Fingerprints()[0] {
			t.Errorf("status %+v", s)
		}
	})
}

func TestChangedDoesNotBlock(t *testing.T) {
	inBubble(t, nil, func(d *desk) {
		for range 100 { // without a Run
			d.Changed("ca", nil)
			d.Changed("unknown", nil)
		}
	})
}

func TestWrongSettingsAreRefused(t *testing.T) {
	good := trustbundle.Config{Client: kubetest.NewFake().Client(), Roots: func(string) *pki.Bundle { return nil }}
	for want, change := range map[string]func(*trustbundle.Config){
		"are required": func(c *trustbundle.Config) { c.Client = nil },
		"is called": func(c *trustbundle.Config) {
			c.Bundles = []trustbundle.Bundle{{Signer: signer, Authority: "a", Name: "example.com:other:a"}}
		},
		"and a suffix": func(c *trustbundle.Config) {
			c.Bundles = []trustbundle.Bundle{{Signer: signer, Authority: "a", Name: "example.com:pods:a:b"}}
		},
		"reserved for Kubernetes": func(c *trustbundle.Config) {
			c.Bundles = []trustbundle.Bundle{{Signer: "kubernetes.io/kubelet-serving", Authority: "a"}}
		},
		"two bundles": func(c *trustbundle.Config) {
			c.Bundles = []trustbundle.Bundle{{Signer: signer, Authority: "a"}, {Signer: signer, Authority: "b"}}
		},
		"names no author": func(c *trustbundle.Config) { c.Bundles = []trustbundle.Bundle{{Signer: signer}} },
	} {
		cfg := good
		change(&cfg)
		if _, err := trustbundle.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := trustbundle.New(good); err != nil {
		t.Error(err)
	}
}
