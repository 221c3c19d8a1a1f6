package meshroots_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/countersign-dev/countersign/internal/test/logtest"
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
	api *fake.Clientset
	log logtest.Log

	mu      sync.Mutex
	roots   *pki.Bundle
	written *pki.Bundle
	tells   int                                // of what is written
	writes  map[string]int                     // by namespace
	refuse  func(namespace string) error       // a write; optional
	after   func(namespace string)             // what somebody does after a write; optional
	alter   func(namespace string) (to string) // what an admission webhook makes of the roots; optional, and empty for nothing

	stop context.CancelFunc
	done chan struct{}
}

// inBubble runs a test with a keeper for the namespaces with the label mesh=on, with a clock of
// its own.
func inBubble(t *testing.T, change func(*meshroots.Config), test func(s *site), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, api: fake.NewClientset(objects...), writes: map[string]int{}}
		s.api.PrependReactor("patch", "configmaps", s.write)
		cfg := meshroots.Config{
			Cluster: "home", Client: s.api, Namespaces: labels.SelectorFromSet(labels.Set{"mesh": "on"}), Authority: authority, Log: s.log.Logger(),
			Roots: func(string) *pki.Bundle { s.mu.Lock(); defer s.mu.Unlock(); return s.roots },
			Written: func(of string, roots *pki.Bundle) {
				if of != authority {
					t.Errorf("written is said of %q", of)
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
		defer func() {
			if s.stop != nil {
				s.end()
			}
		}()
		test(s)
	})
}

func (s *site) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// write has a test refuse or alter what the keeper writes, or answer to it.
func (s *site) write(action clienttesting.Action) (handled bool, made runtime.Object, err error) {
	namespace := action.GetNamespace()
	s.mu.Lock()
	s.writes[namespace]++
	refuse, after, alter := s.refuse, s.after, s.alter
	s.mu.Unlock()
	if refuse != nil {
		if err := refuse(namespace); err != nil {
			return true, nil, err
		}
	}
	if alter != nil && alter(namespace) != "" {
		return true, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: meshroots.Name}, Data: map[string]string{meshroots.Key: alter(namespace)}}, nil
	}
	if after != nil {
		go after(namespace)
	}
	return false, nil, nil
}

func (s *site) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.stop, s.done = cancel, make(chan struct{})
	go func() { defer close(s.done); s.Run(ctx) }()
	s.pass(3 * time.Second)
}

func (s *site) end() {
	s.stop()
	<-s.done
	s.stop = nil
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

// told returns how often the keeper told what is written.
func (s *site) told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tells
}

// wrote returns how often the keeper wrote, in all or in the namespaces that are named.
func (s *site) wrote(in ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace, times := range s.writes {
		if len(in) == 0 || slices.Contains(in, namespace) {
			n += times
		}
	}
	return n
}

// in puts a namespace.
func (s *site) in(name string, has map[string]string) {
	s.t.Helper()
	n := namespace(name)
	n.Labels = has
	_, err := s.api.CoreV1().Namespaces().Update(s.t.Context(), n, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = s.api.CoreV1().Namespaces().Create(s.t.Context(), n, metav1.CreateOptions{})
	}
	must(s.t, err)
}

func (s *site) get(namespace string) *corev1.ConfigMap {
	s.t.Helper()
	m, err := s.api.CoreV1().ConfigMaps(namespace).Get(s.t.Context(), meshroots.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(s.t, err)
	return m
}

// put writes a ConfigMap as another program does.
func (s *site) put(m *corev1.ConfigMap) {
	_, err := s.api.CoreV1().ConfigMaps(m.Namespace).Update(s.t.Context(), m, metav1.UpdateOptions{FieldManager: "pilot-discovery"})
	if apierrors.IsNotFound(err) {
		_, err = s.api.CoreV1().ConfigMaps(m.Namespace).Create(s.t.Context(), m, metav1.CreateOptions{FieldManager: "pilot-discovery"})
	}
	if err != nil {
		s.t.Error(err)
	}
}

// overwrite does what istiod does: it keeps the labels.
func (s *site) overwrite(namespace string) {
	m := s.get(namespace)
	m.Data = map[string]string{meshroots.Key: "theirs"}
	s.put(m)
}

func (s *site) remove(namespace string) {
	s.t.Helper()
	must(s.t, s.api.CoreV1().ConfigMaps(namespace).Delete(s.t.Context(), meshroots.Name, metav1.DeleteOptions{}))
}

// holds demands that namespaces have the roots, in ConfigMaps of ours.
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

// ready demands that all namespaces have roots, and that this was told.
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
