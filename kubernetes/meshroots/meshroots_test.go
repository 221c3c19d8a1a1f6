package meshroots_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

var (
	errAway      = errors.New("connection refused")
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, meshroots.Name, errAway)
	errConflict  = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, meshroots.Name, errAway)
)

func TestRootsGoThroughTheirPhasesInAllChosenNamespaces(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.in("other", map[string]string{"mesh": "off"})
		s.start()
		s.lacks("shop", "bank")
		if err := s.Ready(); err != nil {
			t.Errorf("no roots are known, and %v", err)
		}
		s.has(each[0])
		s.waits("not written yet")
		s.pass(2 * time.Second)
		s.holds(each[0], "shop", "bank")
		s.ready(each[0])
		for _, roots := range []*pki.Bundle{both, each[1]} {
			s.has(roots)
			s.pass(2 * time.Second)
			s.holds(roots, "shop", "bank")
			s.ready(roots)
		}
		s.lacks("other")
		if n := s.wrote(); n != 6 {
			t.Errorf("%d writes", n)
		}
		if st := s.Status(); st.Namespaces != 2 || st.Lacking != 0 || st.Error != "" || st.Roots[0] != each[1].Fingerprints()[0] {
			t.Errorf("status %+v", st)
		}
	}, namespace("shop"), namespace("bank"))
}

func TestNewNamespaceGetsRootsAtOnce(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.has(each[0])
		s.start()
		s.ready(each[0]) // there is none to wait for
		s.in("shop", map[string]string{"mesh": "on"})
		s.in("bank", nil)
		s.pass(100 * time.Millisecond)
		s.holds(each[0], "shop")
		s.lacks("bank")
		s.in("bank", map[string]string{"mesh": "on"})
		s.pass(100 * time.Millisecond)
		s.holds(each[0], "bank")
	})
}

func TestRootCountsAsWrittenWhenTheLastNamespaceHasIt(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.set(func() {
			s.refuse = func(in string) error {
				if in == "bank" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, meshroots.Name, errors.New("exceeded quota"))
				}
				return nil
			}
		})
		s.has(both)
		s.pass(55 * time.Minute)
		s.holds(both, "shop")
		s.holds(each[0], "bank")
		s.waits(`1 of 2 namespaces lack roots, such as "bank"`)
		s.waits("exceeded quota")
		if !s.confirmed().Equal(each[0]) {
			t.Error("it was notified, and bank lacks it")
		}
		if n := s.wrote("bank"); n < 50 || n > 80 {
			t.Errorf("tried %d times in 55 minutes", n)
		}
		if n := s.lines("not in all namespaces"); n < 50 || n > 60 {
			t.Errorf("logged %d times in 55 minutes", n)
		}
		s.set(func() { s.refuse = nil })
		s.pass(2 * time.Minute)
		s.ready(both)
	}, namespace("shop"), namespace("bank"))
}

// What a namespace lacks that is going, or not in the mesh any more, delays no root.
func TestNamespaceThatLeavesIsNotWaitedFor(t *testing.T) {
	for name, leave := range map[string]func(s *site){
		"deleted":    func(s *site) { s.api.Remove("namespaces", "", "bank") },
		"not chosen": func(s *site) { s.in("bank", nil) },
		"terminating": func(s *site) {
			n := namespace("bank")
			n.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			s.api.Put(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				each, _ := ratest.Bundles(t, 1)
				s.set(func() {
					s.refuse = func(in string) error { return map[string]error{"bank": errAway}[in] }
				})
				s.has(each[0])
				s.start()
				s.waits("bank")
				leave(s)
				s.pass(2 * time.Minute)
				s.ready(each[0])
				s.holds(each[0], "shop")
				tried := s.wrote("bank")
				s.pass(time.Hour)
				if s.wrote("bank") != tried {
					t.Error("it is written to")
				}
			}, namespace("shop"), namespace("bank"))
		})
	}
}

func TestAuthorityWithoutRootsChangesNothing(t *testing.T) {
	for name, none := range map[string]*pki.Bundle{"nil": nil, "empty": pki.NewBundle()} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				each, _ := ratest.Bundles(t, 1)
				s.has(each[0])
				s.start()
				s.has(none)
				s.pass(time.Hour)
				s.holds(each[0], "shop")
				s.remove("shop")
				s.in("bank", map[string]string{"mesh": "on"})
				s.pass(5 * time.Second)
				s.holds(each[0], "shop", "bank")
			}, namespace("shop"))
		})
	}
}

func TestWhatOthersDoIsPutRight(t *testing.T) {
	for name, harm := range map[string]func(s *site){
		"edit":     func(s *site) { s.overwrite("shop") },
		"no label": func(s *site) { m := s.get("shop"); m.Labels = nil; s.put(m) },
		"both":     func(s *site) { m := s.get("shop"); m.Labels, m.Data = nil, nil; s.put(m) },
		"deletion": func(s *site) { s.remove("shop") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				each, _ := ratest.Bundles(t, 1)
				s.has(each[0])
				s.start()
				s.pass(time.Minute)
				harm(s)
				s.pass(time.Second)
				s.holds(each[0], "shop")
				s.pass(time.Minute)
				if n := s.lines("restored roots"); n != 1 || s.lines("another client keeps") > 0 {
					t.Errorf("logged %d times: %s", n, &s.log)
				}
			}, namespace("shop"))
		})
	}
}

// istiod with its CA on puts its own roots back at once, each time.
func TestAnotherWriterIsNamedOnceAndNotFought(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.set(func() {
			s.after = func(in string) {
				if in == "shop" {
					time.Sleep(time.Millisecond)
					s.overwrite(in)
				}
			}
		})
		before := s.wrote()
		s.overwrite("shop")
		s.pass(time.Hour)
		if n := s.wrote() - before; n < 8 || n > 20 {
			t.Errorf("%d writes in an hour", n)
		}
		if n := s.lines("another client keeps writing"); n != 1 || !strings.Contains(s.log.String(), "pilot-discovery") {
			t.Errorf("named %d times: %s", n, &s.log)
		}
		if st := s.Status(); st.Disputed != 1 || st.Rival != "pilot-discovery" || st.Lacking != 1 {
			t.Errorf("status %+v", st)
		}
		s.waits("shop")

		// Others have nothing to do with it, and a new root is written once everywhere.
		s.remove("bank")
		s.pass(100 * time.Millisecond)
		s.holds(each[0], "bank")
		s.has(both)
		s.pass(100 * time.Millisecond)
		s.holds(both, "bank")

		s.set(func() { s.after = nil })
		s.pass(11 * time.Minute)
		s.holds(both, "shop")
		s.ready(both)
		s.pass(time.Hour)
		if st := s.Status(); st.Disputed != 0 || st.Rival != "" || s.lines("no other client writes") != 1 {
			t.Errorf("status %+v\n%s", st, &s.log)
		}
		s.overwrite("shop")
		s.pass(100 * time.Millisecond)
		s.holds(both, "shop")
	}, namespace("shop"), namespace("bank"))
}

// Who may write in one namespace does not decide about a root of the mesh.
func TestOwnerOfANamespaceDelaysARootForAnHourAtMost(t *testing.T) {
	for name, row := range map[string]struct {
		does func(s *site)
		left bool
	}{
		"overwrites it": {func(s *site) {
			s.after = func(in string) {
				if in == "shop" {
					time.Sleep(time.Millisecond)
					s.overwrite(in)
				}
			}
		}, true},
		"refuses it":                   {func(s *site) { s.refuse = func(in string) error { return map[string]error{"shop": errForbidden}[in] } }, true},
		"changes it before each write": {func(s *site) { s.refuse = func(in string) error { return map[string]error{"shop": errConflict}[in] } }, true},
		"alters it": {func(s *site) {
			s.alter = func(in string) string { return map[string]string{"shop": "altered"}[in] }
		}, true},
		"the API server is away": {func(s *site) { s.refuse = func(in string) error { return map[string]error{"shop": errAway}[in] } }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				each, both := ratest.Bundles(t, 2)
				s.has(each[0])
				s.start()
				s.ready(each[0])
				s.set(func() { row.does(s) })
				s.has(both)
				s.pass(55 * time.Minute)
				if st := s.Status(); st.Left != nil {
					t.Errorf("left behind within the hour: %q", st.Left)
				}
				if s.Tried() == (name == "the API server is away") {
					t.Errorf("tried: %t", s.Tried())
				}
				s.pass(10 * time.Minute)
				for range 48 * 60 { // and stays so
					if confirmed := s.confirmed().Equal(both); confirmed != row.left {
						t.Fatalf("confirmed: %t\n%s", confirmed, &s.log)
					}
					s.pass(time.Minute)
				}
				if got := fmt.Sprint(s.Status().Left); got != map[bool]string{true: "[shop]", false: "[]"}[row.left] {
					t.Errorf("left behind: %s", got)
				}
				if n := s.lines("no new root waits for a namespace"); n > 1 || n == 0 == row.left {
					t.Errorf("logged %d times", n)
				}
				s.set(func() { s.after, s.refuse, s.alter = nil, nil, nil })
				s.pass(time.Hour)
				s.ready(both)
				if st := s.Status(); st.Left != nil {
					t.Errorf("left behind after it ended: %q", st.Left)
				}
			}, namespace("shop"), namespace("bank"))
		})
	}
}

func TestNamespacesAreChosenAnew(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.put(foreign("shop", nil))
		s.has(each[0])
		s.start()
		if s.confirmed().Len() > 0 {
			t.Error("confirmed with a namespace that lacks the roots")
		}
		s.SetNamespaces(labels.SelectorFromSet(labels.Set{"team": "a"}))
		s.pass(time.Second)
		s.ready(each[0])
		s.holds(each[0], "lab")
		s.SetNamespaces(labels.Everything())
		s.pass(time.Second)
		s.waits("not ours")
	}, namespace("shop"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{"team": "a"}}})
}

// A new root does not turn a fight quick again.
func TestFightStaysSlowWhileRootsChange(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 6)
		s.has(each[0])
		s.start()
		s.set(func() {
			s.after = func(in string) { time.Sleep(time.Millisecond); s.overwrite(in) }
		})
		s.overwrite("shop")
		s.pass(time.Hour)
		before := s.wrote()
		for i := range each {
			s.has(each[i])
			s.pass(time.Minute)
		}
		if n := s.wrote() - before; n > 2*len(each) {
			t.Errorf("%d writes for %d roots", n, len(each))
		}
	}, namespace("shop"))
}

func TestForeignConfigMapIsLeftAlone(t *testing.T) {
	for name, has := range map[string]map[string]string{"no label": nil, "istiod's label": {"istio.io/config": "true"}, "other label": {owned.ManagedBy: "Helm"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				each, _ := ratest.Bundles(t, 1)
				s.has(each[0])
				s.start()
				s.pass(50 * time.Minute)
				if got := s.get("shop").Data[meshroots.Key]; got != "theirs" || s.wrote("shop") > 0 {
					t.Errorf("it has %q", got)
				}
				s.holds(each[0], "bank")
				s.waits("not ours")
				if s.confirmed().Len() > 0 {
					t.Error("confirmed")
				}
				s.remove("shop")
				s.pass(time.Second)
				s.holds(each[0], "shop")
				s.ready(each[0])
			}, namespace("shop"), namespace("bank"), foreign("shop", has))
		})
	}
}

// One that has the very roots will do, whosever it is.
func TestForeignConfigMapWithTheRootsCounts(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		m := foreign("shop", nil)
		m.Data[meshroots.Key] = string(each[0].PEM())
		s.put(m)
		s.has(each[0])
		s.start()
		s.ready(each[0])
		s.has(both)
		s.pass(time.Minute)
		s.waits("not ours")
		if s.wrote() > 0 {
			t.Error("it was written")
		}
	}, namespace("shop"))
}

func TestForeignConfigMapIsAdoptedIfAllowed(t *testing.T) {
	adopt := func(c *meshroots.Config) { c.Adopt = true }
	inBubble(t, adopt, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.put(foreign("shop", map[string]string{"team": "a"}))
		s.has(each[0])
		s.start()
		s.holds(each[0], "shop")
		s.ready(each[0])
		if m := s.get("shop"); m.UID != "foreign" || m.Labels["team"] != "a" || m.Data["more"] != "kept" {
			t.Errorf("it was made anew: %+v", m)
		}
		s.pass(time.Hour)
		if s.wrote() != 1 {
			t.Errorf("%d writes", s.wrote())
		}
	}, namespace("shop"))
}

// The next leader, and the next term of this one, write nothing that is there.
func TestNextRunWritesNothing(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.has(each[0])
		s.start()
		before := s.wrote()
		for range 2 {
			s.stop()
			s.set(func() { s.written = nil })
			s.start()
			s.ready(each[0])
			s.holds(each[0], "shop", "bank")
		}
		if s.wrote() != before {
			t.Errorf("%d writes more", s.wrote()-before)
		}
	}, namespace("shop"), namespace("bank"))
}

// A leader that was stopped and wakes up has old roots, and a successor.
func TestNothingIsWrittenWithoutTheLease(t *testing.T) {
	var lost atomic.Bool
	held := func() error {
		if lost.Load() {
			return errors.New("this replica does not lead")
		}
		return nil
	}
	inBubble(t, func(c *meshroots.Config) { c.Held = held }, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		lost.Store(true)
		s.has(each[0])
		s.start()
		s.pass(10 * time.Minute)
		s.lacks("shop")
		s.waits("does not lead")
		lost.Store(false)
		s.pass(2 * time.Minute)
		s.ready(each[0])
	}, namespace("shop"))
}

func TestWritesAreBoundedAndNewNamespacesGoFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.pass(time.Minute)
		s.ready(each[0])
		before := s.wrote()
		s.has(both)
		s.pass(time.Second)
		if n := s.wrote() - before; n < 30 || n > 45 {
			t.Errorf("%d writes in a second", n)
		}
		s.in("new", map[string]string{"mesh": "on"})
		s.pass(600 * time.Millisecond) // those whose turn it is go before
		s.holds(both, "new")
		if s.confirmed().Equal(both) {
			t.Error("notified too early")
		}
		s.pass(3 * time.Second)
		s.ready(both)
	}, many(60)...)
}

func TestRefusedWritesAreTriedAgain(t *testing.T) {
	for name, err := range map[string]error{
		"away":      errAway,
		"conflicts": apierrors.NewConflict(schema.GroupResource{}, meshroots.Name, errAway),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				each, _ := ratest.Bundles(t, 1)
				s.set(func() { s.refuse = func(string) error { return err } })
				s.has(each[0])
				s.start()
				s.pass(time.Minute)
				if s.Ready() == nil || s.confirmed().Len() > 0 || s.wrote() > 20 {
					t.Errorf("ready, or %d writes in a minute", s.wrote())
				}
				s.set(func() { s.refuse = nil })
				s.pass(time.Minute)
				s.ready(each[0])
			}, namespace("shop"))
		})
	}
}

func TestAlteredWriteIsNotConfirmed(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.set(func() { s.alter = func(string) string { return "altered" } })
		s.has(each[0])
		s.start()
		s.pass(time.Minute)
		s.waits("webhook")
		if s.confirmed().Len() > 0 {
			t.Error("confirmed")
		}
	}, namespace("shop"))
}

func TestTooManyRootsAreRefused(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.has(each[0])
		s.start()
		s.has(ratest.HugeBundle(t))
		s.pass(time.Minute)
		s.waits("a ConfigMap takes 943718")
		s.holds(each[0], "shop")
		s.has(each[0])
		s.pass(time.Second)
		s.ready(each[0])
	}, namespace("shop"))
}

// The roots of the CA that a mesh leaves stay beside ours, and only its own are confirmed to the authority.
func TestFurtherRootsArePublishedBeside(t *testing.T) {
	each, both := ratest.Bundles(t, 2)
	inBubble(t, func(c *meshroots.Config) { c.Further = each[1] }, func(s *site) {
		s.start()
		s.lacks("shop") // alone they are not enough
		s.has(each[0])
		s.pass(time.Second)
		s.holds(both, "shop")
		s.ready(each[0])
	}, namespace("shop"))
}

func TestEndIsQuiet(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.has(each[0])
		s.start()
		before := time.Now()
		s.stop()
		if took := time.Since(before); took > 0 {
			t.Errorf("took %s", took)
		}
		if text := s.log.String(); strings.Contains(text, "WARN") || strings.Contains(text, "ERROR") {
			t.Error(text)
		}
	}, many(30)...)
}

func TestChangedDoesNotBlock(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		for range 100 { // without a Run
			s.Changed(authority, nil)
			s.Changed("unknown", nil)
		}
	})
}

func TestWrongSettingsAreRefused(t *testing.T) {
	good := meshroots.Config{Client: kubetest.NewFake().Client(), Namespaces: labels.Everything(), Roots: func(string) *pki.Bundle { return nil }}
	for name, change := range map[string]func(*meshroots.Config){
		"client": func(c *meshroots.Config) { c.Client = nil }, "selector": func(c *meshroots.Config) { c.Namespaces = nil }, "roots": func(c *meshroots.Config) { c.Roots = nil },
	} {
		cfg := good
		change(&cfg)
		if _, err := meshroots.New(cfg); err == nil || !strings.Contains(err.Error(), "are required") {
			t.Errorf("without a %s: %v", name, err)
		}
	}
	if _, err := meshroots.New(good); err != nil {
		t.Error(err)
	}
}

// Other ConfigMaps of a namespace are left alone.
func TestOtherConfigMapsAreLeftAlone(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}, Data: map[string]string{meshroots.Key: "theirs"}})
		s.has(each[0])
		s.start()
		s.holds(each[0], "shop")
		if m := kubetest.Get[corev1.ConfigMap](s.api, "configmaps", "shop", "settings"); m == nil || m.Data[meshroots.Key] != "theirs" {
			t.Errorf("%+v", m)
		}
	}, namespace("shop"))
}

// Who waits for a root to arrive must know that it is gone, but not what is put right at once.
func TestRemovedRootsAreTakenBack(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.has(each[0])
		s.start()
		s.overwrite("shop")
		s.pass(10 * time.Minute)
		s.ready(each[0])
		if n := s.told(); n != 1 {
			t.Errorf("notified %d times of what was put right", n)
		}
		s.pass(47 * time.Second)
		s.set(func() { s.refuse = func(string) error { return errAway } })
		s.overwrite("shop")
		s.pass(15 * time.Second) // over a look at it
		s.set(func() { s.refuse = nil })
		s.pass(40 * time.Second)
		s.ready(each[0])
		if n := s.told(); n != 1 {
			t.Errorf("notified %d times of what was gone for less than a minute", n)
		}
		s.set(func() { s.refuse = func(string) error { return errAway } })
		s.remove("shop")
		s.pass(10 * time.Minute)
		if n := s.told(); n != 1 {
			t.Errorf("notified %d times of what pods still have", n)
		}
		s.put(foreign("shop", nil))
		s.pass(3 * time.Minute)
		if n := s.told(); n != 2 || s.confirmed().Len() > 0 {
			t.Errorf("notified %d times", n)
		}
		s.remove("shop")
		s.set(func() { s.refuse = nil })
		s.pass(3 * time.Minute)
		s.ready(each[0])
	}, namespace("shop"), namespace("bank"))
}

// A roll-out that takes long takes nothing back.
func TestSlowWritesTakeNothingBack(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		s.has(each[0])
		s.start()
		s.pass(time.Minute)
		s.set(func() { s.refuse = func(string) error { return errAway } })
		s.has(both)
		s.pass(10 * time.Minute)
		if n := s.told(); n != 1 || !s.confirmed().Equal(each[0]) {
			t.Errorf("notified %d times", n)
		}
	}, namespace("shop"), namespace("bank"))
}

func TestOldRootsOfAClusterThatJoinsComeFirst(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, both := ratest.Bundles(t, 2)
		old := foreign("shop", map[string]string{owned.ManagedBy: owned.Manager})
		old.Data[meshroots.Key] = string(each[0].PEM())
		s.put(old)
		s.has(both)
		s.start()
		s.ready(both)
		if n := s.told(); n != 2 {
			t.Errorf("notified %d times", n)
		}
	}, namespace("shop"))
}

// istiod may be faster in a new namespace.
func TestConfigMapThatAppearsMeanwhileIsLeftAlone(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		each, _ := ratest.Bundles(t, 1)
		s.has(each[0])
		s.start()
		s.set(func() {
			s.refuse = func(in string) error { // just before it is written
				s.put(foreign(in, nil))
				return nil
			}
		})
		s.in("shop", map[string]string{"mesh": "on"})
		s.pass(time.Minute)
		if got := s.get("shop").Data[meshroots.Key]; got != "theirs" || s.wrote("shop") != 1 {
			t.Errorf("it has %q after %d writes", got, s.wrote("shop"))
		}
		s.waits("not ours")
	})
}
