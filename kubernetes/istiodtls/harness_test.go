package istiodtls_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls/istiod"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	authority = "ca"
	system    = "istio-system"
)

// site is a cluster with an engine, whose CA is in memory, and one keeper after the other.
type site struct {
	*istiodtls.Keeper
	t      *testing.T
	api    *fake.Clientset
	ca     *catest.CA
	engine *ra.Engine
	cfg    istiodtls.Config
	audit  ratest.Audit
	log    logtest.Log

	mu     sync.Mutex
	writes int
	refuse func(body []byte) error // a write; optional
	before func()                  // what somebody does before a write; optional
	after  func()                  // what somebody does after one; optional

	stop context.CancelFunc
	done chan struct{}
}

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, change func(*istiodtls.Config), test func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, api: fake.NewClientset(), ca: catest.NewCA(catest.Options{Intermediates: 1})}
		s.api.PrependReactor("patch", "secrets", s.write)
		names := istiod.Names(system, "canary")
		s.engine = ratest.Engine(t, ra.Config{
			Policy: ratest.Policy(t, istiod.Rule(authority, system, []string{"home"}, names, 24*time.Hour)), Audit: &s.audit, Log: s.log.Logger(), Doors: []ra.Door{{Name: istiod.Door}},
			Authorities:  []ra.Authority{{Name: authority, Client: s.ca}},
			RootsChanged: s.rootsChanged,
		})
		defer s.engine.Close()
		s.cfg = istiodtls.Config{
			Cluster: "home", Client: s.api, Namespace: system, Names: names, Issuer: s.engine, Authority: authority, Roots: s.engine.Roots, Log: s.log.Logger(),
		}
		if change != nil {
			change(&s.cfg)
		}
		s.next()
		defer func() {
			if s.stop != nil {
				s.end()
			}
		}()
		test(s)
	})
}

// next makes the keeper of the next leader.
func (s *site) next() {
	s.t.Helper()
	k, err := istiodtls.New(s.cfg)
	must(s.t, err)
	s.set(func() { s.Keeper = k })
}

// rootsChanged tells the present keeper, if there is one yet.
func (s *site) rootsChanged(authority string, roots *pki.Bundle) {
	s.mu.Lock()
	k := s.Keeper
	s.mu.Unlock()
	if k != nil {
		k.Changed(authority, roots)
	}
}

func (s *site) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *site) write(action clienttesting.Action) (handled bool, made runtime.Object, err error) {
	s.mu.Lock()
	s.writes++
	refuse, before, after := s.refuse, s.before, s.after
	s.mu.Unlock()
	if before != nil {
		before()
	}
	if refuse != nil {
		return true, nil, refuse(action.(clienttesting.PatchAction).GetPatch())
	}
	if after != nil {
		go func() { time.Sleep(time.Millisecond); after() }()
	}
	return false, nil, nil
}

func (s *site) wrote() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *site) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.stop, s.done = cancel, make(chan struct{})
	go func() { defer close(s.done); s.Run(ctx) }()
	s.pass(5 * time.Second)
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

func (s *site) get() *corev1.Secret {
	s.t.Helper()
	found, err := s.api.CoreV1().Secrets(system).Get(s.t.Context(), istiodtls.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(s.t, err)
	return found
}

// put writes the Secret as another program does.
func (s *site) put(found *corev1.Secret) {
	_, err := s.api.CoreV1().Secrets(system).Update(s.t.Context(), found, metav1.UpdateOptions{FieldManager: "cert-manager"})
	if apierrors.IsNotFound(err) {
		_, err = s.api.CoreV1().Secrets(system).Create(s.t.Context(), found, metav1.CreateOptions{FieldManager: "cert-manager"})
	}
	if err != nil {
		s.t.Error(err)
	}
}

func (s *site) remove() {
	s.t.Helper()
	must(s.t, s.api.CoreV1().Secrets(system).Delete(s.t.Context(), istiodtls.Name, metav1.DeleteOptions{}))
}

// serves demands a Secret that istiod can serve with, and returns its certificate.
func (s *site) serves() *x509.Certificate {
	s.t.Helper()
	found := s.get()
	if found == nil || found.Type != corev1.SecretTypeTLS || found.Labels[owned.ManagedBy] != owned.Manager {
		s.t.Fatalf("there is no Secret of ours\n%s", &s.log)
	}
	pair, err := tls.X509KeyPair(found.Data["tls.crt"], found.Data["tls.key"])
	must(s.t, err)
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(found.Data["ca.crt"]) {
		s.t.Fatal("it has no roots")
	}
	others.AppendCertsFromPEM(found.Data["tls.crt"])
	for _, name := range []string{"istiod", "istiod-canary", "istiod-remote", "istio-pilot"} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name + "." + system + ".svc", Roots: roots, Intermediates: others, CurrentTime: time.Now()})
		must(s.t, err)
	}
	if err := s.Ready(); err != nil {
		s.t.Fatalf("not ready: %v\n%s", err, &s.log)
	}
	s.quiet(found.Data["tls.key"])
	return pair.Leaf
}

// quiet demands that nothing of a key is logged or told.
func (s *site) quiet(key []byte) {
	s.t.Helper()
	block, _ := pem.Decode(key)
	body := strings.Split(string(pem.EncodeToMemory(block)), "\n")[1]
	said := s.log.String() + s.Status().Error
	if err := s.Ready(); err != nil {
		said += err.Error()
	}
	if strings.Contains(said, body) {
		s.t.Error("a key is told")
	}
}

func (s *site) waits(why string) {
	s.t.Helper()
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), why) {
		s.t.Fatalf("ready: %v\n%s", err, &s.log)
	}
}

func (s *site) lines(text string) int { return strings.Count(s.log.String(), text) }

// foreign is another program's Secret.
func foreign(kind corev1.SecretType, has map[string]string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: istiodtls.Name, UID: "foreign", Labels: maps.Clone(has)}, Type: kind,
		Data: map[string][]byte{"tls.crt": []byte("theirs"), "tls.key": []byte("theirs"), "more": []byte("kept")},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
