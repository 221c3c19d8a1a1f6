package istiodtls_test

import (
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls/istiod"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
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
	api    *kubetest.Fake
	ca     *catest.CA
	engine *ra.Engine
	cfg    istiodtls.Config
	audit  ratest.Audit
	log    logtest.Log

	mu     sync.Mutex
	refuse func(body kubetest.Object) error // a write; optional
	before func()                           // runs before a write; optional
	after  func()                           // runs after a write; optional

	stop func()
}

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, change func(*istiodtls.Config), test func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, stop: func() {}, api: kubetest.NewFake(), ca: catest.NewCA(catest.Options{Intermediates: 1})}
		s.api.Before, s.api.After = s.beforeCall, s.afterCall
		names := istiod.Names(system, "canary")
		s.engine = ratest.Engine(t, ra.Config{
			Policy: ratest.Policy(t, istiod.Rule(authority, system, []string{"home"}, names, 24*time.Hour)), Audit: &s.audit, Log: s.log.Logger(), Doors: []ra.Door{{Name: istiod.Door}},
			Authorities:  []ra.Authority{{Name: authority, Client: s.ca}},
			RootsChanged: s.rootsChanged,
		})
		defer s.engine.Close()
		s.cfg = istiodtls.Config{
			Cluster: "home", Client: s.api.Client(), Namespace: system, Names: names, Issuer: s.engine, Authority: authority, Roots: s.engine.Roots, Log: s.log.Logger(),
		}
		if change != nil {
			change(&s.cfg)
		}
		s.next()
		defer func() { s.stop() }()
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

// rootsChanged notifies the present keeper, if there is one yet.
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

func (s *site) beforeCall(c *kubetest.Call) error {
	s.mu.Lock()
	refuse, before := s.refuse, s.before
	s.mu.Unlock()
	if c.Verb != "patch" {
		return nil
	}
	if before != nil {
		before()
	}
	if refuse != nil {
		return refuse(c.Object)
	}
	return nil
}

func (s *site) afterCall(c *kubetest.Call) {
	s.mu.Lock()
	after := s.after
	s.mu.Unlock()
	if c.Verb == "patch" && after != nil {
		after()
	}
}

func (s *site) wrote() int { return s.api.Called("patch", "secrets") }

func (s *site) start() {
	s.stop = background.Run(s.Run)
	s.pass(5 * time.Second)
}

func (s *site) pass(by time.Duration) {
	time.Sleep(by)
	synctest.Wait()
}

func (s *site) get() *corev1.Secret {
	return kubetest.Get[corev1.Secret](s.api, "secrets", system, istiodtls.Name)
}

// put writes the Secret as another program does.
func (s *site) put(found *corev1.Secret) {
	now := metav1.Now()
	found.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "cert-manager", Time: &now}}
	s.api.Put(found)
}

func (s *site) remove() { s.api.Remove("secrets", system, istiodtls.Name) }

// serves demands a Secret that istiod can serve with, and returns its certificate.
func (s *site) serves() *x509.Certificate {
	s.t.Helper()
	found := s.get()
	if found == nil || found.Type != corev1.SecretTypeTLS || found.Labels[owned.ManagedBy] != owned.Manager {
		s.t.Fatalf("our Secret is missing\n%s", &s.log)
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

// quiet demands that no part of a key is logged or returned.
func (s *site) quiet(key []byte) {
	s.t.Helper()
	block, _ := pem.Decode(key)
	body := strings.Split(string(pem.EncodeToMemory(block)), "\n")[1]
	said := s.log.String() + s.Status().Error
	if err := s.Ready(); err != nil {
		said += err.Error()
	}
	if strings.Contains(said, body) {
		s.t.Error("a key leaks")
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

var must = fatal.If
