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
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// engine asks its one authority as the guard allows.
type engine struct {
	roots *pki.Bundle
	reply ra.Certificate
	calls int
	while func() // the authority works; nil: nothing happens
}

// scene is a guard of an engine, and the clusters.
type scene struct {
	*guard.Authorities
	t      *testing.T
	engine *engine
	log    logtest.Log
}

// ask has the engine ask its authority for a subject of the cluster.
func (s *scene) ask(cluster string) error {
	s.t.Helper()
	if err := s.Before("ca", cluster, s.engine.roots); err != nil {
		return err
	}
	s.engine.calls++
	if s.engine.while != nil {
		s.engine.while()
	}
	return s.After(s.engine.reply, cluster)
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
		s.Authorities = guard.NewAuthorities(s.log.Logger(), func() []*guard.ClientCA { return guards })
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
		if err := s.ask("home"); err != nil {
			t.Fatal(err)
		}
		for _, theirs := range []*certtest.Pair{home, away} {
			s.engine.roots = bundle(ours.Cert, theirs.Cert)
			if err := s.ask("home"); !errors.Is(err, ca.ErrNotConfigured) || ra.Refused(err) {
				t.Errorf("got %v", err)
			}
		}
		if s.engine.calls != 1 {
			t.Errorf("asked %d times", s.engine.calls)
		}
		if n := strings.Count(s.log.String(), `level=ERROR msg="authority not asked"`); n != 1 {
			t.Errorf("logged %d times within a minute", n)
		}
		s.engine.roots = bundle(ours.Cert)
		if err := s.ask("home"); err != nil {
			t.Errorf("mended: %v", err)
		}
		if err := s.ask("nowhere"); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("a cluster that is not connected: %v", err)
		}
	})
}

// The reply itself shows who signed, which costs one certificate, not one for each request.
func TestCertificateSignedByAClientCAIsDiscarded(t *testing.T) {
	away, ours := certtest.Root(t), certtest.Root(t)
	below := ours.Issue(t, certtest.Root(t).Cert)
	for name, theirs := range map[string]*certtest.Pair{"an intermediate": below, "a new root": ours} {
		t.Run(name, func(t *testing.T) {
			meet(t, theirs, away, func(t *testing.T, s *scene, _ []*cluster) {
				s.engine.reply = ra.Certificate{Authority: "ca", Chain: []byte(pemOf(below.Leaf(t, time.Hour).Cert, below.Cert)), Roots: bundle(ours.Cert)}
				for range 9 {
					if err := s.ask("home"); !errors.Is(err, ca.ErrNotConfigured) || ra.Refused(err) {
						t.Fatalf("got %v", err)
					}
					if n := strings.Count(s.log.String(), "authority's certificate discarded"); n != 1 {
						t.Fatalf("said %d times that a certificate was discarded: %s", n, &s.log)
					}
					pass(time.Minute)
				}
				if s.engine.calls != 1 {
					t.Errorf("asked %d times in 9 minutes", s.engine.calls)
				}
				pass(2 * time.Minute)
				_ = s.ask("home")
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
		s.Authorities = guard.NewAuthorities(s.log.Logger(), func() []*guard.ClientCA { return guards })
		if err := s.ask("home"); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("at the start: %v", err)
		}
		if said := s.log.String(); !strings.Contains(said, "level=WARN") || strings.Contains(said, "level=ERROR") {
			t.Errorf("what mends itself is logged as %s", said)
		}
		run(t, guards[0].Run)
		if err := s.ask("home"); err != nil {
			t.Errorf("home: %v", err)
		}
		if err := s.ask("away"); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("away: %v", err)
		}
	})
}

// At a start, an authority is not asked as nothing is known, and a moment later as it is a client CA.
func TestWarningKeepsNoErrorOutOfTheLog(t *testing.T) {
	home := certtest.Root(t)
	meet(t, home, certtest.Root(t), func(t *testing.T, s *scene, _ []*cluster) {
		s.engine.roots = bundle(certtest.Root(t).Cert)
		_ = s.ask("nowhere")
		s.engine.roots = bundle(home.Cert)
		_, _ = s.ask("home"), s.ask("home")
		for _, level := range []string{"WARN", "ERROR"} {
			if n := strings.Count(s.log.String(), "level="+level+` msg="authority not asked"`); n != 1 {
				t.Errorf("%d lines of level %s: %s", n, level, &s.log)
			}
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
		s.Authorities = guard.NewAuthorities(s.log.Logger(), func() []*guard.ClientCA { return clusters })
		for name, left := range map[string][]*guard.ClientCA{
			"removed":   {west},
			"connected": {west, newClientCA(t, "east", newCluster())},
		} {
			clusters = []*guard.ClientCA{west, east}
			s.engine.while = func() { clusters = left }
			if err := s.ask("east"); !errors.Is(err, ca.ErrUnavailable) || ca.RetryAfter(err) > time.Minute {
				t.Errorf("%s anew, east: %v", name, err)
			}
			s.engine.while = nil
			if err := s.ask("west"); err != nil {
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
		if err := s.ask("nowhere"); !errors.Is(err, ca.ErrNotConfigured) {
			t.Error(err)
		}
		s.engine.roots, s.engine.reply = bundle(ours.Cert), ra.Certificate{Authority: "ca", Chain: []byte("none")}
		for range 3 {
			if err := s.ask("home"); !errors.Is(err, ca.ErrNotConfigured) {
				t.Error(err)
			}
		}
		if s.engine.calls != 1 {
			t.Errorf("an authority whose chain cannot be read was asked %d times", s.engine.calls)
		}
	})
}
