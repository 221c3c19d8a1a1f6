package ra_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// desk is a shelf at which several write.
type desk struct{ *shelf }

func (d desk) Update(_ context.Context, name string, change func([]byte) []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if next := change(d.records[name]); !bytes.Equal(next, d.records[name]) {
		d.records[name] = next
		d.saves++
	}
	return nil
}

func (d desk) put(record string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records["ca"] = []byte(record)
}

func (d desk) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.records)
}

// pair is an engine that leads, and one that is led. They have one authority and one record.
type pair struct {
	lead, led *house
	store     desk
}

// inPair runs a test of both engines, with settings that they share.
func inPair(t *testing.T, roots ra.Roots, change func(*ra.Config), test func(p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{store: desk{newShelf()}}
		open := func(led bool, authority *ratest.CA) *house {
			return newHouse(t, func(c *ra.Config) {
				c.Store, c.Authorities[0].Roots = p.store, roots
				c.Authorities[0].Roots.Led = led
				if authority != nil { // the same, by another connection
					c.Authorities[0].Client = authority
				}
				if change != nil {
					change(c)
				}
			})
		}
		p.lead = open(false, nil)
		defer func() { p.lead.Close() }()
		synctest.Wait()
		same := ratest.NewCA(t)
		same.Signs, same.Published = p.lead.ca.Signs, p.lead.ca.Published
		p.led = open(true, same)
		p.led.ca = same
		defer func() { p.led.Close() }()
		synctest.Wait()
		test(p)
	})
}

// next has the authority publish another root beside its first.
func (p *pair) next(t *testing.T) (next *certtest.Pair) {
	t.Helper()
	next = ratest.Root(t, "second")
	time.Sleep(time.Second)
	p.tell(p.lead.ca.Signs.Cert, next.Cert)
	return next
}

func (p *pair) tell(roots ...*x509.Certificate) {
	p.lead.ca.Publish(roots...)
	p.led.ca.Publish(roots...)
	synctest.Wait()
}

func (p *pair) phases(t *testing.T, what, lead, led string) {
	t.Helper()
	synctest.Wait()
	if p.lead.phases() != lead || p.led.phases() != led {
		t.Errorf("%s: %q at the leader, %q at the follower; want %q, %q", what, p.lead.phases(), p.led.phases(), lead, led)
	}
}

// A replica cannot see whether a root is written everywhere; the record shows it.
func TestWhoIsLedTrustsARootOnceTheLeaderDoes(t *testing.T) {
	inPair(t, ra.Roots{Confirmed: true}, nil, func(p *pair) {
		p.next(t)
		time.Sleep(time.Hour)
		p.phases(t, "while no bundle has it", "trusted announced", "trusted announced")
		p.lead.RootsWritten("ca", p.lead.Roots("ca"))
		time.Sleep(9 * time.Minute)
		p.phases(t, "while it is waited for", "trusted waiting", "trusted waiting")
		p.lead.RootsWritten("ca", pki.NewBundle(p.lead.ca.Signs.Cert)) // a cluster lacks it now
		time.Sleep(time.Hour)
		p.phases(t, "after it was removed", "trusted announced", "trusted announced")
		p.lead.RootsWritten("ca", p.lead.Roots("ca"))
		time.Sleep(10*time.Minute + 15*time.Second)
		p.phases(t, "after the wait", "trusted trusted", "trusted trusted") //nolint:dupword // two roots
	})
}

// The leader is away, and the authority leaves no choice.
func TestStaleRecordHoldsBackWhatCanWait(t *testing.T) {
	for name, confirmed := range map[string]bool{"no replica reports what is written": false, "the leader reports what is written": true} {
		t.Run(name, func(t *testing.T) {
			inPair(t, ra.Roots{Confirmed: confirmed, Wait: time.Hour, Unplanned: 4 * time.Minute}, nil, func(p *pair) {
				if _, err := p.led.pod(); err != nil {
					t.Fatal(err)
				}
				p.lead.Close()
				next := p.next(t)
				time.Sleep(2 * time.Hour)
				if p.led.phases() == "trusted trusted" { //nolint:dupword // two roots
					t.Error("a root is trusted before the leader trusts it")
				}
				p.led.ca.Set(func() { p.led.ca.Signs = next })
				if _, err := p.led.pod(); err != nil { // it was announced hours ago
					t.Fatal(err)
				}
				p.lead.open() // a new leader learns of it, and that it is in use
				time.Sleep(20 * time.Second)
				p.lead.RootsWritten("ca", p.lead.Roots("ca"))
				time.Sleep(5 * time.Minute)
				if cert, err := p.led.pod(); err != nil || cert.Roots.Len() != 2 {
					t.Errorf("with a leader: %v", err)
				}
			})
		})
	}
}

// No replica can see what another gave out, so each adds it to the record.
func TestCertificatesOfWhoIsLedCount(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	long := func(c *ra.Config) { c.Authorities[0].AcceptLongerTTL = new(true) }
	inPair(t, ra.Roots{Confirmed: true, ByReply: true, Wait: time.Minute}, long, func(p *pair) {
		p.led.ca.Set(func() {
			p.led.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
				leaf.NotAfter = time.Now().Add(4 * time.Hour)
			}
		})
		req := request()
		req.Door = istio
		req.CSR, req.TTL = empty(1), time.Hour
		if cert, err := p.led.issue(req); err != nil || time.Until(cert.NotAfter) < 3*time.Hour {
			t.Fatal(err, cert.NotAfter)
		}
		time.Sleep(15 * time.Second)
		old, next := p.lead.ca.Signs, p.next(t)
		p.lead.RootsWritten("ca", p.lead.Roots("ca"))
		time.Sleep(3*time.Hour + 50*time.Minute)
		p.phases(t, "while a certificate lives whose holder has one root", "trusted waiting", "trusted waiting")
		p.led.ca.Set(func() { p.led.ca.Change = nil })
		req.CSR = empty(2)
		if _, err := p.led.issue(req); err != nil { // below the old one
			t.Fatal(err)
		}
		time.Sleep(45 * time.Minute)                                            // an end is recorded an eighth of a life later
		p.phases(t, "after it has ended", "trusted trusted", "trusted trusted") //nolint:dupword // two roots
		p.lead.ca.Set(func() { p.lead.ca.Signs = next })
		p.tell(next.Cert)
		time.Sleep(12 * time.Minute)
		p.phases(t, "while a certificate below the old root lives", "withdrawn trusted", "withdrawn trusted")
		if !p.lead.Roots("ca").Contains(old.Cert) {
			t.Error("the old root is not published any more")
		}
		time.Sleep(time.Hour)
		p.phases(t, "after the last one", "trusted", "trusted")
	})
}

// A replica of Istio's CA API makes the pods of such a cluster wait.
func TestClusterThatIsLeftBehindIsKnownToAllReplicas(t *testing.T) {
	inPair(t, ra.Roots{Confirmed: true}, nil, func(p *pair) {
		behind := func(want ...string) {
			t.Helper()
			time.Sleep(15 * time.Second)
			if got := p.led.Behind("ca"); !slices.Equal(got, want) {
				t.Errorf("%q are left behind, want %q", got, want)
			}
		}
		p.lead.SetBehind("ca", "west", true)
		p.lead.SetBehind("ca", "east", true)
		behind("east", "west")
		p.lead.Close()
		good, _ := p.store.Load(t.Context(), "ca")
		for _, record := range []string{"", "{", `{"version":99}`} { // an empty list is not known from these
			p.store.put(record)
			behind("east", "west")
		}
		p.store.put(string(good))
		p.lead.open() // the next leader goes by the record
		behind("east", "west")
		p.lead.SetBehind("ca", "east", false)
		behind("west")
	})
}

// A place does not get its hour anew with each leader.
func TestPlacesThatLackRootsAreKnownToTheNextLeader(t *testing.T) {
	inPair(t, ra.Roots{Confirmed: true}, nil, func(p *pair) {
		since := time.Now().Truncate(time.Second)
		lacking := func(want map[string]time.Time) {
			t.Helper()
			time.Sleep(15 * time.Second)
			p.lead.Close()
			p.lead.open()
			time.Sleep(time.Second)
			if got := p.lead.Lacking("ca"); !maps.EqualFunc(got, want, time.Time.Equal) {
				t.Errorf("%v lack roots, want %v", got, want)
			}
		}
		p.lead.SetLacking("ca", map[string]time.Time{"east/x": since})
		lacking(map[string]time.Time{"east/x": since})
		p.led.SetLacking("ca", map[string]time.Time{"west/x": since}) // it does not lead
		lacking(map[string]time.Time{"east/x": since})
		p.lead.SetLacking("ca", nil)
		lacking(nil)
	})
}

// What is held back for hours is not, once the root is trusted.
func TestHoldEndsWithItsReason(t *testing.T) {
	inPair(t, ra.Roots{Confirmed: true, Wait: 10 * time.Minute, Unplanned: 24 * time.Hour}, nil, func(p *pair) {
		next := p.next(t)
		for _, h := range []*house{p.lead, p.led} {
			h.ca.Set(func() { h.ca.Signs = next })
			if _, err := h.pod(); !errors.Is(err, ca.ErrUnavailable) || ca.RetryAfter(err) > time.Minute {
				t.Fatalf("got %v, after %s", err, ca.RetryAfter(err))
			}
		}
		p.lead.RootsWritten("ca", p.lead.Roots("ca"))
		time.Sleep(10*time.Minute + 11*time.Second)
		for _, h := range []*house{p.lead, p.led} {
			if _, err := h.pod(); err != nil {
				t.Error(err)
			}
			if h.Status()[0].Held != "" {
				t.Error("it is shown as held back")
			}
		}
	})
}

// At the very first start the leader may be a little later, and a record that was deleted comes back.
func TestMissingRecordIsWaitedFor(t *testing.T) {
	store := desk{newShelf()}
	inBubble(t, func(c *ra.Config) {
		c.Store, c.Authorities[0].Roots.Led, c.Authorities[0].Timeout = store, true, 5*time.Second
	}, func(h *house) {
		if _, err := h.pod(); !errors.Is(err, ca.ErrUnavailable) || len(h.ca.Requests()) > 0 {
			t.Errorf("got %v after %d calls", err, len(h.ca.Requests()))
		}
		time.Sleep(15 * time.Second)
		if _, err := h.pod(); err != nil || h.phases() != "trusted" {
			t.Errorf("without a leader for a while: %v, %s", err, h.phases())
		}
	})
}

func TestDeletedRecordComesBackAndChangesNothing(t *testing.T) {
	inPair(t, ra.Roots{Confirmed: true}, nil, func(p *pair) {
		p.next(t)
		time.Sleep(20 * time.Second)
		p.phases(t, "before", "trusted announced", "trusted announced")
		p.store.clear()
		for range 12 {
			time.Sleep(5 * time.Second)
			p.phases(t, "after it was deleted", "trusted announced", "trusted announced")
		}
		if record, _ := p.store.Load(t.Context(), "ca"); len(record) == 0 {
			t.Error("the record is not written again")
		}
	})
}

func TestSpoiledCommonRecordIsRebuiltAndANewerOneKept(t *testing.T) {
	for record, newer := range map[string]bool{"{": false, "[]": false, `{"roots":{"version":1,"roots":[{"pem":"x"}]}}`: false, `{"version":2,"roots":7}`: true} {
		inPair(t, ra.Roots{Confirmed: true}, nil, func(p *pair) {
			for _, restarts := range []bool{false, true} {
				if p.lead.Close(); restarts {
					p.led.Close()
				}
				p.store.put(record)
				p.lead.open()
				if restarts {
					p.led.open()
				}
				time.Sleep(40 * time.Second)
				if cert, err := p.led.pod(); err != nil || cert.Roots.Len() != 1 {
					t.Errorf("%s: %v", record, err)
				}
				time.Sleep(20 * time.Second)
				kept, _ := p.store.Load(t.Context(), "ca")
				said := p.lead.Status()[0].Record
				if (string(kept) == record) != newer || (said != "") != newer {
					t.Errorf("%s became %s; the leader has %q", record, kept, said)
				}
			}
			next := p.next(t)
			time.Sleep(20 * time.Second)
			if !strings.HasSuffix(p.led.phases(), "announced") && !newer || !p.led.Roots("ca").Contains(next.Cert) {
				t.Errorf("%s: a new root is %q", record, p.led.phases())
			}
		})
	}
}

// A replica that cannot read the record does not go by its last state for ever, nor does that end anything.
func TestRecordThatCannotBeReadChangesNothing(t *testing.T) {
	inPair(t, ra.Roots{}, nil, func(p *pair) {
		p.store.set(errors.New("the API server is away"))
		next := p.next(t)
		time.Sleep(time.Hour)
		p.phases(t, "meanwhile", "trusted trusted", "trusted waiting") //nolint:dupword // two roots
		if cert, err := p.led.pod(); err != nil || !cert.Roots.Contains(next.Cert) {
			t.Errorf("got %v", err)
		}
		p.store.set(nil)
		time.Sleep(time.Minute)
		p.phases(t, "later", "trusted trusted", "trusted trusted") //nolint:dupword // two roots
	})
}

// The leader signs nothing, and learns of roots by what the others report.
func TestLeaderGetsRootsThatRepliesAloneBring(t *testing.T) {
	blinded := func(c *ra.Config) { c.Authorities[0].Client = blind{c.Authorities[0].Client.(*ratest.CA)} }
	inPair(t, ra.Roots{Confirmed: true, Unplanned: time.Minute}, blinded, func(p *pair) {
		time.Sleep(20 * time.Second) // there is no record
		if _, err := p.led.pod(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		p.phases(t, "the first", "trusted", "trusted")
		old, next := p.lead.ca.Signs, ratest.Root(t, "second")
		p.led.ca.Set(func() { p.led.ca.Signs, p.led.ca.Published = next, append(slices.Clone(p.led.ca.Published), next.Cert) })
		if _, err := p.led.pod(); !errors.Is(err, ca.ErrUnavailable) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		p.phases(t, "the second", "trusted announced", "trusted announced")
		p.lead.RootsWritten("ca", pki.NewBundle(old.Cert, next.Cert))
		time.Sleep(75 * time.Second)
		if _, err := p.led.pod(); err != nil {
			t.Errorf("once it is written for a minute: %v", err)
		}
	})
}

func TestWaitForRootsChangesAtOnce(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Roots.Wait = time.Hour }, func(h *house) {
		next := ratest.Root(t, "second")
		h.ca.Publish(h.ca.Signs.Cert, next.Cert)
		h.SetRootsWait("ca", 3*time.Hour)
		time.Sleep(2 * time.Hour)
		if h.phases() != "trusted waiting" {
			t.Errorf("the longer wait does not count: %s", h.phases())
		}
		h.SetRootsWait("ca", time.Hour)
		synctest.Wait()
		if h.phases() != "trusted trusted" { //nolint:dupword // two roots
			t.Errorf("the shorter wait does not count: %s", h.phases())
		}
		h.SetRootsWait("nobody", time.Hour)
	})
}

func TestWhoIsLedNeedsACommonRecord(t *testing.T) {
	cfg := ra.Config{Policy: policy(t, mesh()), Audit: &ratest.Audit{}, Authorities: []ra.Authority{{Name: "ca", Client: ratest.NewCA(t), Roots: ra.Roots{Led: true}}}}
	for _, store := range []ra.Store{nil, newShelf()} {
		if cfg.Store = store; store == nil {
			cfg.Store = nil
		}
		if e, err := ra.New(cfg); err == nil {
			e.Close()
			t.Error("it is taken")
		}
	}
}

// A value of CertSigner is a door, and rules come and go.
func TestDoorsComeAndGoWithTheRules(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		fast := mesh()
		fast.Match.Doors = []string{"fast"}
		req := request()
		req.Door, req.CSR = "fast", empty(3)
		h.refused(req, ca.ErrInvalid)
		if err := h.SetPolicy(policy(t, fast)); err == nil {
			t.Error("a rule for no door is taken")
		}
		if err := h.SetRules(policy(t, fast), []ra.Door{{Name: "fast", MinLifetime: -1}}); err == nil {
			t.Error("a wrong door is taken")
		}
		if err := h.SetRules(policy(t, fast), []ra.Door{{Name: "fast"}}); err != nil {
			t.Fatal(err)
		}
		if h.Try(web(), "fast").Denied != "" {
			t.Error("the new door has no rule")
		}
		h.must(req)
		if err := h.SetRules(policy(t, mesh()), []ra.Door{{Name: istio}}); err != nil {
			t.Fatal(err)
		}
		req.CSR = empty(4)
		h.refused(req, ca.ErrInvalid)
	})
}

// What waits for its turn at a door that goes away is not signed any more.
func TestRequestAtADoorThatIsGoneIsAborted(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Limits = ra.Limits{Rate: 0.1, Burst: 1} }, func(h *house) {
		h.must(request())
		req := request()
		req.Door, req.CSR = istio, empty(5)
		done := make(chan error, 1)
		go func() { _, err := h.issue(req); done <- err }()
		synctest.Wait()
		if err := h.SetRules(policy(t, mesh()), []ra.Door{{Name: kubelet}}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ca.ErrAborted) {
			t.Errorf("got %v", err)
		}
	})
}
