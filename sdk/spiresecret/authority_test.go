package spiresecret_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

// memoryStorage is a Storage in memory.
type memoryStorage struct{ records sync.Map }

func (s *memoryStorage) Load(_ context.Context, name string) (secret.Record, error) {
	r, _ := s.records.LoadOrStore(name, secret.Record{})
	return r.(secret.Record), nil
}

func (s *memoryStorage) Store(_ context.Context, name string, r secret.Record) error {
	s.records.Store(name, r)
	return nil
}

// pair is a Manager whose "default" comes from a Workload API and, failing that, from a CA.
type pair struct {
	*secret.Manager
	*spiresecret.Authority
	t      *testing.T
	api    *api
	root   *certtest.Pair
	ca     *catest.CA
	log    *logtest.Log
	mu     sync.Mutex
	events map[string]int // by type and authority

	noting sync.Mutex
	seen   []string // who signed, at each change
	last   string   // the version that seen ends with
}

// withCA starts it; stored may be nil.
func withCA(t *testing.T, from *api, root *certtest.Pair, authority *catest.CA, stored secret.Storage) *pair {
	t.Helper()
	p := &pair{t: t, api: from, root: root, ca: authority, log: &logtest.Log{}, events: map[string]int{}}
	var err error
	p.Authority, err = spiresecret.NewAuthority(spiresecret.Config{Dial: from.dial, Log: p.log.Logger(), Secrets: []spiresecret.Spec{
		{Name: "default", Kind: secret.KeyPair, SPIFFEID: web}, {Name: "roots", Kind: secret.TrustBundle, TrustDomain: "example.org"},
	}})
	must(t, err)
	id, err := pki.NewIdentity(web, []string{"server"}, nil)
	must(t, err)
	both := []string{"spire", "ca"}
	p.Manager, err = secret.New(secret.Config{
		Authorities: []secret.Authority{
			{Name: "spire", Client: p.Authority, AcceptLongerTTL: new(true), RootOverlap: new(time.Duration)}, {Name: "ca", Client: authority},
		},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Authorities: both, Identity: id, TTL: time.Hour, RenewJitter: 0.01},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: both},
		},
		Storage: stored, Observe: p.observe, Log: p.log.Logger(),
	})
	must(t, err)
	stop, err := p.Watch(agent, "default", p.note)
	must(t, err)
	p.note("default") // New may have served the first before Watch
	t.Cleanup(stop)
	t.Cleanup(p.close)
	p.Notify(func() { p.Kick("spire") })
	synctest.Wait()
	return p
}

func (p *pair) close() {
	if err := p.Authority.Close(); err != nil {
		p.t.Error(err)
	}
	if err := p.Manager.Close(); err != nil {
		p.t.Error(err)
	}
}

// note keeps who signed what is served, once for each version.
func (p *pair) note(string) {
	p.noting.Lock()
	defer p.noting.Unlock()
	if item, err := p.Peek(agent, "default"); err == nil && item.Version != p.last {
		p.seen, p.last = append(p.seen, item.Authority), item.Version
	}
}

func (p *pair) observe(e secret.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events[string(e.Kind)+" "+e.Authority]++
}

func (p *pair) count(kind secret.EventKind, authority string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events[string(kind)+" "+authority]
}

// signers returns who signed what was served, one after another.
func (p *pair) signers() string {
	p.noting.Lock()
	defer p.noting.Unlock()
	return strings.Join(p.seen, ">")
}

// is checks who signed what is served, and that ROOTCA has the roots of both.
func (p *pair) is(authority string) *secret.Item {
	p.t.Helper()
	synctest.Wait()
	item, err := p.Peek(agent, "default")
	if err != nil || item.Authority != authority {
		p.t.Fatalf("default is of %v, %v; want %s\n%s", item, err, authority, p.log)
	}
	roots, err := p.Peek(agent, "ROOTCA")
	want := []string{pki.Fingerprint(p.root.Cert), pki.Fingerprint(p.ca.Bundle().Certificates()[0])}
	if slices.Sort(want); err != nil || !slices.Equal(roots.RootFingerprints, want) {
		p.t.Fatalf("ROOTCA is %v, %v\n%s", roots, err, p.log)
	}
	return item
}

// live has the Workload API and a CA for it.
func live(t *testing.T) (*api, *certtest.Pair, *catest.CA) {
	t.Helper()
	root := certtest.Root(t)
	return sending(t, of(t, root, web)), root, catest.NewCA(catest.Options{})
}

func TestCASignsWhileTheWorkloadAPIIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, root, authority := live(t)
		p := withCA(t, from, root, authority, nil)
		first := p.is("spire")
		if failed := p.count(secret.Failed, "spire"); failed != 0 {
			t.Errorf("%d failures at the start\n%s", failed, p.log)
		}
		// It is away, but what it sent is fresh.
		from.stop()
		pass(time.Until(first.RenewAt) - time.Second)
		if held := p.is("spire"); held != first || len(authority.Requests()) != 0 {
			t.Errorf("%s; the CA was asked %d times", held, len(authority.Requests()))
		}
		pass(29 * time.Second)
		p.is("spire")
		pass(4 * time.Second)
		p.is("ca")
		if got := authority.Requests(); len(got) != 1 || got[0].SubjectID != web {
			t.Errorf("the CA was asked %d times", len(got))
		}
		// The CA renews while the Workload API stays away, and at once.
		second := p.is("ca")
		pass(time.Until(second.RenewAt) + time.Second)
		if p.is("ca").Version == second.Version || len(authority.Requests()) != 2 {
			t.Errorf("the CA was asked %d times\n%s", len(authority.Requests()), p.log)
		}
		from.send(of(t, root, web))
		from.start()
		pass(75 * time.Second) // the next connection, within a minute, and what holds new roots back
		p.is("spire")
		pass(30 * time.Minute)
		if got := p.signers(); got != "spire>ca>ca>spire" || len(authority.Requests()) != 2 {
			t.Errorf("signed by %s, %d requests", got, len(authority.Requests()))
		}
	})
}

func TestWorkloadAPIThatComesAndGoesChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, root, authority := live(t)
		p := withCA(t, from, root, authority, nil)
		for range 13 { // for 30 minutes; it is overdue after 37
			from.stop()
			pass(time.Minute)
			from.start()
			pass(80 * time.Second) // the next connection comes within a minute
		}
		if p.is("spire"); p.signers() != "spire" || len(authority.Requests()) != 0 {
			t.Errorf("signed by %s", p.signers())
		}
		from.send(of(t, root, web))
		pass(time.Second)
		if p.is("spire"); p.signers() != "spire>spire" || p.count(secret.Failed, "spire") != 0 {
			t.Errorf("signed by %s\n%s", p.signers(), p.log)
		}
	})
}

// SPIRE's agent answers with what it has while its server is away.
func TestCASignsWhileTheWorkloadAPIHasNoSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, root, authority := live(t)
		p := withCA(t, from, root, authority, nil)
		pass(time.Until(p.is("spire").RenewAt) + 35*time.Second)
		p.is("ca")
		from.stop() // it sends the old one again
		from.start()
		pass(time.Minute)
		p.Kick("spire") // a SIGHUP does not bring it back either
		if p.is("ca"); p.signers() != "spire>ca" {
			t.Errorf("signed by %s\n%s", p.signers(), p.log)
		}
		from.send(of(t, root, web))
		pass(10 * time.Second)
		p.is("spire")
	})
}

func TestCASignsWhenTheWorkloadAPIWasNeverThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, root, authority := newAPI(t), certtest.Root(t), catest.NewCA(catest.Options{})
		p := withCA(t, from, root, authority, nil)
		pass(35 * time.Second)
		if item, err := p.Peek(agent, "default"); err != nil || item.Authority != "ca" {
			t.Fatalf("%v, %v\n%s", item, err, p.log)
		}
		from.send(of(t, root, web))
		from.start()
		pass(time.Minute)
		p.is("spire")
	})
}

func TestRefusalOfTheWorkloadAPIDiffersFromOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	synctest.Test(t, func(t *testing.T) {
		from, root, authority := live(t)
		p := withCA(t, from, root, authority, nil)
		p.is("spire")
		from.answer(func(stream) error { return status.Error(codes.PermissionDenied, "no identity issued") })
		from.stop()
		from.start()
		pass(2 * time.Hour)
		if _, err := p.Peek(agent, "default"); err == nil || !strings.Contains(err.Error(), "no identity issued") || len(authority.Requests()) != 0 {
			t.Errorf("%v; the CA was asked %d times", err, len(authority.Requests()))
		}
	})
}

func TestAnotherIdentityIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, root, authority := live(t)
		sent := of(t, root, web)
		leaf := root.Leaf(t, time.Hour, web)
		template := *leaf.Cert
		template.SerialNumber, template.DNSNames = nil, []string{"bank.example"}
		sent.Svids[0] = svid(t, web, root, root.Issue(t, &template))
		from.send(sent)
		p := withCA(t, from, root, authority, nil)
		pass(time.Minute)
		if item, err := p.Peek(agent, "default"); err == nil || !strings.Contains(err.Error(), "bank.example") {
			t.Errorf("%v, %v", item, err)
		}
	})
}

func TestSVIDIsKeptOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, root, authority := live(t)
		stored := &memoryStorage{}
		p := withCA(t, from, root, authority, stored)
		first := p.is("spire")
		pass(time.Minute)
		p.close()
		from.stop()
		p = withCA(t, from, root, authority, stored)
		if item := p.is("spire"); item.Version != first.Version || string(item.Key) != string(first.Key) || !item.RenewAt.Equal(first.RenewAt) {
			t.Errorf("%s, renewed at %s; want %s", item, item.RenewAt, first.RenewAt)
		}
		pass(30 * time.Minute)
		p.is("spire")
		from.send(of(t, root, web))
		from.start()
		pass(40 * time.Second)
		if p.is("spire").Version == first.Version || len(authority.Requests()) != 0 {
			t.Errorf("the one of the last run is served; the CA was asked %d times\n%s", len(authority.Requests()), p.log)
		}
	})
}

func TestDroppedRootOfTheWorkloadAPIGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, root, authority := live(t)
		p := withCA(t, from, root, authority, nil)
		p.is("spire")
		p.root = certtest.Root(t)
		from.send(of(t, p.root, web))
		pass(10 * time.Second)
		if p.is("spire"); p.signers() != "spire>spire" {
			t.Errorf("signed by %s\n%s", p.signers(), p.log)
		}
	})
}

func TestAuthorityNeedsOneIdentityAndOneBundle(t *testing.T) {
	for name, specs := range map[string][]spiresecret.Spec{
		"no bundle": {{Name: "default", Kind: secret.KeyPair, SPIFFEID: web}},
		"two":       {{Name: "a", Kind: secret.TrustBundle}, {Name: "b", Kind: secret.TrustBundle}},
		"no ID":     {{Name: "default", Kind: secret.KeyPair}, {Name: "ROOTCA", Kind: secret.TrustBundle}},
	} {
		if _, err := spiresecret.NewAuthority(spiresecret.Config{Socket: "socket", Secrets: specs}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAuthoritySignsNothing(t *testing.T) {
	if _, err := new(spiresecret.Authority).CSRSign(t.Context(), ca.SignRequest{}); ca.ReasonFor(err) != ca.Unimplemented {
		t.Error(err)
	}
}
