package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// engine is an engine with one authority.
type engine struct {
	roots *pki.Bundle
	reply ra.Certificate
	calls int
	while func() // the authority works; nil: nothing happens
}

func (o *engine) Decide(s ra.Subject, _ string) ra.Decision {
	if s.User == "stranger" {
		return ra.Decision{Denied: "no rule matches"}
	}
	return ra.Decision{Authority: "ca"}
}

func (o *engine) Roots(string) *pki.Bundle { return o.roots }

func (o *engine) Issue(_ context.Context, req ra.Request) (ra.Certificate, error) {
	if req.Subject.User == "stranger" {
		return ra.Certificate{}, ca.ErrDenied
	}
	o.calls++
	if o.while != nil {
		o.while()
	}
	return o.reply, nil
}

// scene is an issuer before an engine, and the clusters.
type scene struct {
	signing.Issuer
	t      *testing.T
	engine *engine
	log    logtest.Log
}

func (s *scene) ask(cluster, user string) error {
	s.t.Helper()
	cert, err := s.Issue(s.t.Context(), ra.Request{Subject: ra.Subject{Kind: ra.User, Cluster: cluster, User: user}, Door: "door"})
	if err != nil && cert.Chain != nil {
		s.t.Error("a certificate comes with an error")
	}
	return err
}

// meet runs a test with two clusters: home takes clients of one CA, away of another.
func meet(t *testing.T, home, away *certtest.Pair, test func(t *testing.T, s *scene, clusters []*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clusters := []*cluster{
			newCluster(clientCAs(map[string]string{"client-ca-file": pemOf(home.Cert)})),
			newCluster(clientCAs(map[string]string{"client-ca-file": pemOf(away.Cert)})),
		}
		guards := []*guard.ClientCA{newClientCA(t, "home", clusters[0]), newClientCA(t, "away", clusters[1])}
		s := &scene{t: t, engine: &engine{}}
		s.Issuer = guard.Issuer(s.engine, s.engine, s.log.Logger(), func() []*guard.ClientCA { return guards })
		run(t, func(ctx context.Context) { go guards[1].Run(ctx); guards[0].Run(ctx) })
		test(t, s, clusters)
	})
}

func TestAuthorityThatIsAClientCAIsNotAsked(t *testing.T) {
	home, away, ours := certtest.Root(t), certtest.Root(t), certtest.Root(t)
	leaf := ours.Leaf(t, time.Hour)
	good := ra.Certificate{Authority: "ca", Chain: []byte(pemOf(leaf.Cert)), Roots: bundle(ours.Cert)}
	meet(t, home, away, func(t *testing.T, s *scene, _ []*cluster) {
		s.engine.roots, s.engine.reply = bundle(ours.Cert), good
		if err := s.ask("home", "web"); err != nil {
			t.Fatal(err)
		}
		for _, theirs := range []*certtest.Pair{home, away} {
			s.engine.roots = bundle(ours.Cert, theirs.Cert)
			if err := s.ask("home", "web"); !errors.Is(err, ca.ErrNotConfigured) || ra.Refused(err) {
				t.Errorf("got %v", err)
			}
		}
		if s.engine.calls != 1 {
			t.Errorf("asked %d times", s.engine.calls)
		}
		if err := s.ask("home", "stranger"); !errors.Is(err, ca.ErrDenied) {
			t.Errorf("a stranger: %v", err)
		}
		if n := strings.Count(s.log.String(), "authority not asked"); n != 1 {
			t.Errorf("logged %d times within a minute", n)
		}
		s.engine.roots = bundle(ours.Cert)
		if err := s.ask("home", "web"); err != nil {
			t.Errorf("mended: %v", err)
		}
		if err := s.ask("nowhere", "web"); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("a cluster that is not connected: %v", err)
		}
	})
}

// The reply itself shows who signed, which costs one certificate, not one for each request.
func TestCertificateSignedByAClientCAIsWithheld(t *testing.T) {
	away, ours := certtest.Root(t), certtest.Root(t)
	below := ours.Issue(t, certtest.Root(t).Cert)
	for name, theirs := range map[string]*certtest.Pair{"an intermediate": below, "a new root": ours} {
		t.Run(name, func(t *testing.T) {
			meet(t, theirs, away, func(t *testing.T, s *scene, _ []*cluster) {
				s.engine.reply = ra.Certificate{Authority: "ca", Chain: []byte(pemOf(below.Leaf(t, time.Hour).Cert, below.Cert)), Roots: bundle(ours.Cert)}
				for range 9 {
					if err := s.ask("home", "web"); !errors.Is(err, ca.ErrNotConfigured) || ra.Refused(err) {
						t.Fatalf("got %v", err)
					}
					if n := strings.Count(s.log.String(), "authority's certificate withheld"); n != 1 {
						t.Fatalf("said %d times that a certificate was withheld: %s", n, &s.log)
					}
					pass(time.Minute)
				}
				if s.engine.calls != 1 {
					t.Errorf("asked %d times in 9 minutes", s.engine.calls)
				}
				pass(2 * time.Minute)
				_ = s.ask("home", "web")
				if s.engine.calls != 2 {
					t.Errorf("asked %d times in 11 minutes", s.engine.calls)
				}
			})
		})
	}
}

func TestClusterThatWasNeverReachedStopsItsOwnAlone(t *testing.T) {
	ours, theirs := certtest.Root(t), certtest.Root(t)
	synctest.Test(t, func(t *testing.T) {
		home, away := newCluster(clientCAs(nil)), newCluster()
		guards := []*guard.ClientCA{newClientCA(t, "home", home), newClientCA(t, "away", away)}
		s := &scene{t: t, engine: &engine{roots: bundle(ours.Cert), reply: ra.Certificate{Authority: "ca", Chain: []byte(pemOf(theirs.Leaf(t, time.Hour).Cert))}}}
		s.Issuer = guard.Issuer(s.engine, s.engine, s.log.Logger(), func() []*guard.ClientCA { return guards })
		if err := s.ask("home", "web"); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("at the start: %v", err)
		}
		run(t, guards[0].Run)
		if err := s.ask("home", "web"); err != nil {
			t.Errorf("home: %v", err)
		}
		if err := s.ask("away", "web"); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("away: %v", err)
		}
	})
}

// A cluster that goes away while its request is with the authority is no reason to stop the others.
func TestClusterThatIsLostMeanwhileCostsItsOwnCertificateAlone(t *testing.T) {
	ours := certtest.Root(t)
	good := ra.Certificate{Authority: "ca", Chain: []byte(pemOf(ours.Leaf(t, time.Hour).Cert)), Roots: bundle(ours.Cert)}
	synctest.Test(t, func(t *testing.T) {
		west, east := newClientCA(t, "west", newCluster(clientCAs(nil))), newClientCA(t, "east", newCluster(clientCAs(nil)))
		run(t, func(ctx context.Context) { go west.Run(ctx); east.Run(ctx) })
		clusters := []*guard.ClientCA{west, east}
		s := &scene{t: t, engine: &engine{roots: bundle(ours.Cert), reply: good}}
		s.Issuer = guard.Issuer(s.engine, s.engine, s.log.Logger(), func() []*guard.ClientCA { return clusters })
		for name, left := range map[string][]*guard.ClientCA{
			"removed":   {west},
			"connected": {west, newClientCA(t, "east", newCluster())},
		} {
			clusters = []*guard.ClientCA{west, east}
			s.engine.while = func() { clusters = left }
			if err := s.ask("east", "web"); !errors.Is(err, ca.ErrUnavailable) || ca.RetryAfter(err) > time.Minute {
				t.Errorf("%s anew, east: %v", name, err)
			}
			s.engine.while = nil
			if err := s.ask("west", "web"); err != nil {
				t.Errorf("%s anew, west: %v", name, err)
			}
		}
	})
}

// What is found in one cluster counts, whatever is not known of another.
func TestClientCAOfAnotherClusterIsFoundWhileHomeIsLost(t *testing.T) {
	away, ours := certtest.Root(t), certtest.Root(t)
	meet(t, certtest.Root(t), away, func(t *testing.T, s *scene, _ []*cluster) {
		s.engine.roots = bundle(away.Cert)
		if err := s.ask("nowhere", "web"); !errors.Is(err, ca.ErrNotConfigured) {
			t.Error(err)
		}
		s.engine.roots, s.engine.reply = bundle(ours.Cert), ra.Certificate{Authority: "ca", Chain: []byte("none")}
		for range 3 {
			if err := s.ask("home", "web"); !errors.Is(err, ca.ErrNotConfigured) {
				t.Error(err)
			}
		}
		if s.engine.calls != 1 {
			t.Errorf("an authority whose chain cannot be read was asked %d times", s.engine.calls)
		}
	})
}
