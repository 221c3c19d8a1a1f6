package meshroots_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const authority = "ca"

// site is a cluster with a keeper.
type site struct {
	*meshroots.Keeper
	t   *testing.T
	api *kubetest.Fake
	log logtest.Log

	mu      sync.Mutex
	roots   *pki.Bundle
	written *pki.Bundle
	tells   int                                // of what is written
	refuse  func(namespace string) error       // a write; optional
	after   func(namespace string)             // runs after a write; optional
	alter   func(namespace string) (to string) // what an admission webhook makes of the roots; optional, and empty for nothing

	stop func()
}

// inBubble runs a test with a keeper for the namespaces with the label mesh=on, with a clock of
// its own.
func inBubble(t *testing.T, change func(*meshroots.Config), test func(s *site), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, stop: func() {}, api: kubetest.NewFake()}
		for _, o := range objects {
			s.api.Put(o)
		}
		s.api.Before, s.api.After = s.beforeCall, s.afterCall
		cfg := meshroots.Config{
			Cluster: "home", Client: s.api.Client(), Namespaces: labels.SelectorFromSet(labels.Set{"mesh": "on"}), Authority: authority, Log: s.log.Logger(),
			Roots: func(string) *pki.Bundle { s.mu.Lock(); defer s.mu.Unlock(); return s.roots },
			Written: func(of string, roots *pki.Bundle) {
				if of != authority {
					t.Errorf("written is reported of %q", of)
				}
				s.set(func() { s.written = roots; s.tells++ })
			},
		}
		if change != nil {
			change(&cfg)
		}
		var err error
		if s.Keeper, err = meshroots.New(cfg); err != nil {
			t.Fatal(err)
		}
		defer func() { s.stop() }()
		test(s)
	})
}

func (s *site) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// beforeCall refuses or alters what the keeper writes, as a test demands.
func (s *site) beforeCall(c *kubetest.Call) error {
	s.mu.Lock()
	refuse, alter := s.refuse, s.alter
	s.mu.Unlock()
	if c.Verb != "patch" {
		return nil
	}
	if refuse != nil {
		if err := refuse(c.Namespace); err != nil {
			return err
		}
	}
	if alter != nil && alter(c.Namespace) != "" {
		m := foreign(c.Namespace, nil)
		m.Data[meshroots.Key] = alter(c.Namespace)
		c.Reply = kubetest.ObjectOf(m)
	}
	return nil
}

func (s *site) afterCall(c *kubetest.Call) {
	s.mu.Lock()
	after := s.after
	s.mu.Unlock()
	if c.Verb == "patch" && after != nil {
		go after(c.Namespace)
	}
}

func (s *site) start() {
	s.stop = background.Run(s.Run)
	s.pass(3 * time.Second)
}

func (s *site) pass(by time.Duration) {
	time.Sleep(by)
	synctest.Wait()
}

// has the authority have those roots.
func (s *site) has(roots *pki.Bundle) {
	s.set(func() { s.roots = roots })
	s.Changed(authority, roots)
}

func (s *site) confirmed() *pki.Bundle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// told returns how often the keeper reported what is written.
func (s *site) told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tells
}

// wrote returns how often the keeper wrote, in all or in the namespaces that are named.
func (s *site) wrote(in ...string) (n int) {
	for _, c := range s.api.Calls() {
		if c.Verb == "patch" && (len(in) == 0 || slices.Contains(in, c.Namespace)) {
			n++
		}
	}
	return n
}

// in puts a namespace.
func (s *site) in(name string, has map[string]string) {
	n := namespace(name)
	n.Labels = has
	s.api.Put(n)
}

func (s *site) get(namespace string) *corev1.ConfigMap {
	return kubetest.Get[corev1.ConfigMap](s.api, "configmaps", namespace, meshroots.Name)
}

// put writes a ConfigMap as another program does.
func (s *site) put(m *corev1.ConfigMap) {
	now := metav1.Now()
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "pilot-discovery", Time: &now, FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:root-cert.pem":{}}}`)}}
	s.api.Put(m)
}

// overwrite does what istiod does: it keeps the labels.
func (s *site) overwrite(namespace string) {
	m := s.get(namespace)
	m.Data = map[string]string{meshroots.Key: "theirs"}
	s.put(m)
}

func (s *site) remove(namespace string) { s.api.Remove("configmaps", namespace, meshroots.Name) }

// holds demands that namespaces have the roots, in our ConfigMaps.
func (s *site) holds(roots *pki.Bundle, namespaces ...string) {
	s.t.Helper()
	for _, namespace := range namespaces {
		m := s.get(namespace)
		if m == nil || m.Data[meshroots.Key] != string(roots.PEM()) || m.Labels[owned.ManagedBy] != owned.Manager {
			s.t.Fatalf("in %s there is %+v\n%s", namespace, m, &s.log)
		}
	}
}

// lacks demands that namespaces have no ConfigMap.
func (s *site) lacks(namespaces ...string) {
	s.t.Helper()
	for _, namespace := range namespaces {
		if m := s.get(namespace); m != nil {
			s.t.Fatalf("in %s there is %+v", namespace, m)
		}
	}
}

// ready demands that all namespaces have roots, and that this was reported.
func (s *site) ready(roots *pki.Bundle) {
	s.t.Helper()
	if err := s.Ready(); err != nil || !s.confirmed().Equal(roots) {
		s.t.Fatalf("ready: %v, confirmed %v\n%s", err, s.confirmed().Fingerprints(), &s.log)
	}
}

// waits demands that it is not ready, for the reason that is given.
func (s *site) waits(why string) {
	s.t.Helper()
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), why) {
		s.t.Fatalf("ready: %v\n%s", err, &s.log)
	}
}

func (s *site) lines(text string) int { return strings.Count(s.log.String(), text) }

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mesh": "on"}}}
}

// foreign is another program's ConfigMap.
func foreign(namespace string, has map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: meshroots.Name, UID: "foreign", Labels: has},
		Data:       map[string]string{meshroots.Key: "theirs", "more": "kept"},
	}
}

func many(n int) (objects []runtime.Object) {
	for i := range n {
		objects = append(objects, namespace(fmt.Sprintf("n-%04d", i)))
	}
	return objects
}
