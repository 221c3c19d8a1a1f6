package program

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// brief is a configuration for a mesh whose certificates live for 20 minutes, and that of its CA API
// for 4 hours.
const brief = `
dev: true
providers: [{name: vault}]
istio: {listen: ":15012", certificate: {dns_names: [countersign-ra.countersign.svc], ttl: 4h}}
mesh: {roots: {enabled: true}}
rules:
- name: mesh
  max_ttl: 20m
  match: {requests: [istio]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
`

// common is the record that engines share, in memory.
type common struct {
	mu     sync.Mutex
	record []byte
}

func (c *common) Load(context.Context, string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record, nil
}

func (c *common) Save(ctx context.Context, name string, record []byte) error {
	return c.Update(ctx, name, func([]byte) []byte { return record })
}

func (c *common) Update(_ context.Context, _ string, change func([]byte) []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record = change(bytes.Clone(c.record))
	return nil
}

// shownTo is a door's certificate, and the engines by which proxies get roots to verify it with.
type shownTo struct {
	*testing.T
	config    config.Config
	ca        *catest.CA
	lead, led *ra.Engine
}

// inMesh runs a test in which the mesh has the CA's root.
func inMesh(t *testing.T, test func(s *shownTo)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Parse("c.yaml", []byte(brief))
		if err != nil {
			t.Fatal(err)
		}
		s := &shownTo{T: t, config: c, ca: catest.NewCA(catest.Options{})}
		store := &common{}
		s.lead = s.engine(store, false)
		defer s.lead.Close()
		synctest.Wait()
		s.written(s.ca.Bundle())
		s.led = s.engine(store, true)
		defer s.led.Close()
		test(s)
	})
}

func (s *shownTo) engine(store ra.Store, led bool) *ra.Engine {
	s.Helper()
	of := &service{config: s.config}
	of.now.Store(&s.config)
	a := of.authority(secret.Authority{Name: "vault", Client: s.ca})
	a.Roots.Led = led
	engine, err := ra.New(ra.Config{
		Policy: s.config.Policy(), Doors: s.config.Doors(), Authorities: []ra.Authority{a}, Audit: ratest.NoAudit, Store: store,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.Fatal(err)
	}
	return engine
}

// start is a replica that starts.
func (s *shownTo) start() *ownCertificate {
	s.Helper()
	own, err := openCertificate(&s.config, s.led, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = own.close() })
	return own
}

// written publishes that the mesh has these roots, and no others.
func (s *shownTo) written(roots *pki.Bundle) { s.lead.RootsWritten("vault", roots) }

// shows reports whether who has these roots can verify what is shown.
func (s *shownTo) shows(own *ownCertificate, roots *pki.Bundle) bool {
	s.Helper()
	item, err := own.Peek(secret.Caller{}, agent.DefaultSecret)
	if err != nil {
		s.Fatalf("%s: %v: %+v", time.Now(), err, own.report())
	}
	leaf, err := pki.ParseCertificates(item.Chain)
	if err != nil {
		s.Fatal(err)
	}
	_, err = leaf[0].Verify(x509.VerifyOptions{Roots: roots.Pool(), CurrentTime: time.Now(), DNSName: caAddress})
	return err == nil
}

// The CA signs below its new root as soon as it publishes it, and a namespace lacks that root for
// ever.
func TestOwnCertificateIsBelowARootThatTheMeshHas(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	inMesh(t, func(s *shownTo) {
		own, old := s.start(), s.ca.Bundle()
		time.Sleep(20 * time.Second)
		if !s.shows(own, old) {
			t.Fatal("it has none at the first start")
		}
		time.Sleep(20 * time.Minute)
		s.ca.Rotate()
		next := s.ca.Bundle()
		s.ca.SetRoots(old.Union(next))
		restarted := s.start()
		for range 9 {
			time.Sleep(time.Minute)
			if !s.shows(own, old) {
				t.Fatal("it is renewed below an unpublished root")
			}
			if err := restarted.ready(); err == nil || !strings.Contains(err.Error(), "not published for long enough") {
				t.Fatalf("one that starts shows a certificate below an unpublished root, or does not say why it has none: %v", err)
			}
		}
		time.Sleep(5 * time.Minute) // the namespace still lacks the root
		if !s.shows(own, old) || !s.shows(restarted, next) {
			t.Error("one namespace keeps a replica without a certificate")
		}
		time.Sleep(3 * time.Hour)
		if !s.shows(own, next) {
			t.Error("the certificate is not renewed below the new root")
		}
	})
}

// All other certificates below the old root have ended long before.
func TestOldRootStaysWhileTheOwnCertificateNeedsIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	inMesh(t, func(s *shownTo) {
		own, old := s.start(), s.ca.Bundle()
		time.Sleep(20 * time.Minute)
		s.ca.Rotate()
		next := s.ca.Bundle()
		s.ca.SetRoots(old.Union(next))
		synctest.Wait()
		s.written(s.lead.Roots("vault"))
		time.Sleep(35 * time.Minute)
		s.ca.SetRoots(next)
		for range 5 * 6 {
			time.Sleep(10 * time.Minute)
			has := s.lead.Roots("vault")
			s.written(has)
			if !s.shows(own, has) {
				t.Fatalf("the mesh has %d roots, and cannot verify the certificate that ends at %s", has.Len(), own.report().NotAfter)
			}
		}
		if !s.lead.Roots("vault").Equal(next) || !s.shows(own, next) {
			t.Error("the old root is still needed")
		}
	})
}
