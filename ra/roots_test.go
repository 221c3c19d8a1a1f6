package ra_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// shelf keeps records in memory.
type shelf struct {
	mu      sync.Mutex
	records map[string][]byte
	saves   int
	fail    error
}

func (s *shelf) Load(_ context.Context, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[name], s.fail
}

func (s *shelf) Save(_ context.Context, name string, record []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		s.records[name] = record
		s.saves++
	}
	return s.fail
}

func (s *shelf) set(fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func newShelf() *shelf { return &shelf{records: map[string][]byte{}} }

// pod asks for a pod of its own each time.
func (h *house) pod() (ra.Certificate, error) {
	h.pods++
	req := request()
	req.Subject.PodUID = fmt.Sprint("pod ", h.pods)
	return h.issue(req)
}

func (h *house) phases() string {
	var all []string
	for _, root := range h.Status()[0].Roots {
		all = append(all, root.Phase)
	}
	return strings.Join(all, " ")
}

func TestNewRootIsPublishedBeforeItSigns(t *testing.T) {
	var published []*pki.Bundle
	inBubble(t, func(c *ra.Config) {
		c.Authorities[0].Roots = ra.Roots{Confirmed: true}
		c.RootsChanged = func(_ string, roots *pki.Bundle) { published = append(published, roots) }
	}, func(h *house) {
		if _, err := h.pod(); err != nil {
			t.Fatal(err)
		}
		old, next := h.ca.Signs, ratest.Root(t, "second")
		time.Sleep(time.Second)
		h.ca.Publish(old.Cert, next.Cert)
		synctest.Wait()
		if got := published[len(published)-1]; got.Len() != 2 || h.phases() != "trusted announced" {
			t.Errorf("%d roots are published, their phases are %s", got.Len(), h.phases())
		}
		if cert, err := h.pod(); err != nil || cert.Roots.Len() != 2 {
			t.Errorf("a certificate meanwhile: %v, with %d roots", err, cert.Roots.Len())
		}
		time.Sleep(time.Hour) // no bundle has it
		h.RootsWritten("ca", published[len(published)-1])
		time.Sleep(9 * time.Minute)
		if h.phases() != "trusted waiting" {
			t.Errorf("nine minutes after it was written: %s", h.phases())
		}
		time.Sleep(61 * time.Second)
		if h.phases() != "trusted trusted" { //nolint:dupword // two roots
			t.Errorf("ten minutes after: %s", h.phases())
		}
		h.ca.Set(func() { h.ca.Signs = next })
		if _, err := h.pod(); err != nil {
			t.Fatal(err)
		}
		h.ca.Publish(next.Cert)
		time.Sleep(22 * time.Hour) // certificates of the old root live
		if h.phases() != "withdrawn trusted" || h.Roots("ca").Len() != 2 {
			t.Errorf("while certificates of the old root live: %s", h.phases())
		}
		time.Sleep(3 * time.Hour)
		if h.phases() != "trusted" || !h.Roots("ca").Contains(next.Cert) {
			t.Errorf("after that: %s", h.phases())
		}
	})
}

// A clock that is a day ahead for one look neither trusts a root that waits nor forgets a withdrawn one.
func TestJumpOfTheClockMovesNoRoot(t *testing.T) {
	var ahead atomic.Int64
	inBubble(t, func(c *ra.Config) {
		c.Authorities[0].Roots = ra.Roots{Confirmed: true, Wait: time.Hour}
		c.Now = func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }
	}, func(h *house) {
		jump := func(by time.Duration) {
			ahead.Store(int64(24 * time.Hour))
			time.Sleep(by)
			ahead.Store(0)
			time.Sleep(time.Minute)
		}
		if _, err := h.pod(); err != nil {
			t.Fatal(err)
		}
		old, next := h.ca.Signs, ratest.Root(t, "second")
		time.Sleep(time.Second)
		h.ca.Publish(old.Cert, next.Cert)
		synctest.Wait()
		h.RootsWritten("ca", h.Roots("ca"))
		jump(31 * time.Second)
		if h.phases() != "trusted waiting" {
			t.Errorf("after the clock was a day ahead: %s", h.phases())
		}
		time.Sleep(time.Hour)
		h.ca.Set(func() { h.ca.Signs = next })
		h.ca.Publish(next.Cert)
		synctest.Wait()
		time.Sleep(time.Hour) // the wait of a withdrawn root
		jump(31 * time.Second)
		if h.phases() != "withdrawn trusted" {
			t.Errorf("after the clock was a day ahead again: %s", h.phases())
		}
		jump(2 * time.Hour) // it is right after all
		if h.phases() != "trusted" {
			t.Errorf("after the clock was ahead for hours: %s", h.phases())
		}
	})
}

func TestAuthorityThatRotatesByItselfIsHeldBack(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Roots = ra.Roots{Unplanned: 4 * time.Minute} }, func(h *house) {
		if _, err := h.pod(); err != nil {
			t.Fatal(err)
		}
		next := ratest.Root(t, "second")
		time.Sleep(time.Second)
		h.ca.Set(func() { h.ca.Signs = next })
		h.ca.Publish(next.Cert)
		synctest.Wait()
		before := h.ca.Issued()
		for range 20 {
			if _, err := h.pod(); !errors.Is(err, ca.ErrUnavailable) || ca.RetryAfter(err) == 0 || ca.RetryAfter(err) > 4*time.Minute {
				t.Errorf("got %v, after %s", err, ca.RetryAfter(err))
			}
		}
		if n := h.ca.Issued() - before; n != 1 {
			t.Errorf("%d certificates that no caller got", n)
		}
		if s := h.Status()[0]; s.Held == "" || s.HeldFor <= 0 || !s.Roots[1].Unplanned {
			t.Errorf("the status shows %+v", s)
		}
		time.Sleep(4*time.Minute + time.Second)
		if cert, err := h.pod(); err != nil || !cert.Roots.Contains(next.Cert) || cert.Roots.Len() != 2 {
			t.Errorf("after the time for it: %v", err)
		}
	})
}

// An authority whose provider was taken over publishes a root of its own.
func TestOnlyPinnedRootsAreTaken(t *testing.T) {
	inBubble(t, func(c *ra.Config) {
		c.Authorities[0].PinnedRoots = pki.NewBundle(c.Authorities[0].Client.(*ratest.CA).Published...)
	}, func(h *house) {
		evil := ratest.Root(t, "evil")
		h.ca.Set(func() { h.ca.Signs = evil })
		h.ca.Publish(evil.Cert)
		synctest.Wait()
		if _, err := h.pod(); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if h.Roots("ca").Contains(evil.Cert) {
			t.Error("a root that is not pinned is published")
		}
	})
}

func TestPhasesOutliveRestart(t *testing.T) {
	store := newShelf()
	inBubble(t, func(c *ra.Config) {
		c.Store, c.Authorities[0].Roots = store, ra.Roots{Wait: time.Hour}
	}, func(h *house) {
		h.ca.Backdate = 3 * time.Minute
		if _, err := h.pod(); err != nil {
			t.Fatal(err)
		}
		old, next := h.ca.Signs, ratest.Root(t, "second")
		time.Sleep(time.Second)
		h.ca.Publish(old.Cert, next.Cert)
		time.Sleep(30 * time.Minute)
		h.Close()
		calls := len(h.ca.Requests())
		h.open()
		synctest.Wait()
		if h.phases() != "trusted waiting" {
			t.Errorf("after the restart: %s", h.phases())
		}
		if _, err := h.pod(); err != nil || len(h.ca.Requests()) != calls+1 {
			t.Errorf("the backdating is forgotten: %v, %d calls", err, len(h.ca.Requests())-calls)
		}
		time.Sleep(31 * time.Minute)
		if h.phases() != "trusted trusted" { //nolint:dupword // two roots
			t.Errorf("an hour after it was notified: %s", h.phases())
		}
	})
}

// What is not known may not be taken for nothing: the first roots would be trusted at once.
func TestNothingIsSignedBeforeTheRecordIsRead(t *testing.T) {
	store := newShelf()
	store.fail = errors.New("the API server is away")
	inBubble(t, func(c *ra.Config) { c.Store = store }, func(h *house) {
		time.AfterFunc(time.Hour, func() { store.set(nil) })
		for range 10 {
			if _, err := h.pod(); !errors.Is(err, ca.ErrUnavailable) || ra.Refused(err) {
				t.Fatalf("%v; the log is %s", err, h.log)
			}
		}
		if n := len(h.ca.Requests()); n > 0 {
			t.Errorf("%d calls", n)
		}
		time.Sleep(time.Hour)
		if _, err := h.pod(); err != nil {
			t.Fatal(err)
		}
	})
	inBubble(t, func(c *ra.Config) { c.Store = store; store.set(errors.New("away")) }, func(h *house) {
		time.Sleep(time.Minute)
		h.Close() // nor does it keep the engine
	})
}

func TestRecordHasTheRootsThatArePublished(t *testing.T) {
	store := newShelf()
	inBubble(t, func(c *ra.Config) { c.Store = store }, func(h *house) {
		if roots, err := ra.RecordedRoots(nil); roots.Len() != 0 || err != nil {
			t.Errorf("without a record: %v, %v", roots, err)
		}
		synctest.Wait()
		text, err := store.Load(t.Context(), h.Status()[0].Authority)
		if err != nil {
			t.Fatal(err)
		}
		roots, err := ra.RecordedRoots(text)
		if want := h.Roots(h.Status()[0].Authority); err != nil || want.Len() != 1 || !roots.Equal(want) {
			t.Errorf("%v, %v; published are %v", roots, err, want)
		}
		if _, err := ra.RecordedRoots([]byte(`{"version":99}`)); err == nil {
			t.Error("a record of a newer version is used")
		}
	})
}

func TestStoreThatCannotSaveStopsNoRequest(t *testing.T) {
	store := newShelf()
	inBubble(t, func(c *ra.Config) { c.Store = store }, func(h *house) {
		synctest.Wait()
		store.set(errors.New("the API server is away"))
		saves := store.saves
		if _, err := h.pod(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		store.set(nil)
		time.Sleep(time.Minute)
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.saves == saves {
			t.Error("what could not be saved is not saved later")
		}
	})
}

// Others hold certificates, so a root that is maybe new to them waits. What the authority signs below
// does not: there is no other choice.
func TestUselessRecordIsRebuiltAndStopsNoRequest(t *testing.T) {
	for record, newer := range map[string]bool{
		`{`: false, `{"backdating":"x"}`: false, `[]`: false, `{"roots":{"version":1,"roots":[{"pem":"x"}]}}`: false,
		`{"version":2,"backdating":"x"}`: true, `{"backdating":1,"roots":{"version":9,"roots":7}}`: true,
	} {
		store := newShelf()
		store.records["ca"] = []byte(record)
		next := ratest.Root(t, "second")
		inBubble(t, func(c *ra.Config) {
			c.Store = store
			office := c.Authorities[0].Client.(*ratest.CA)
			office.Published = append(office.Published, next.Cert)
		}, func(h *house) {
			synctest.Wait()
			if h.phases() != "waiting waiting" || h.Roots("ca").Len() != 2 || h.Status()[0].Record == "" { //nolint:dupword // two roots
				t.Errorf("%s: %s, %q; the log is %s", record, h.phases(), h.Status()[0].Record, h.log)
			}
			if _, err := h.pod(); err != nil || !strings.Contains(h.phases(), "trusted") || !strings.Contains(h.phases(), "waiting") {
				t.Errorf("%s: %v, %s", record, err, h.phases())
			}
			time.Sleep(11 * time.Minute)
			if h.phases() != "trusted trusted" { //nolint:dupword // two roots
				t.Errorf("%s: once the other is everywhere: %s", record, h.phases())
			}
			h.Close()
			if kept := string(store.records["ca"]); (kept == record) != newer {
				t.Errorf("%s became %s", record, kept)
			}
		})
	}
}

func TestRecordIsNotSavedForEachCertificate(t *testing.T) {
	store := newShelf()
	inBubble(t, func(c *ra.Config) { c.Store = store }, func(h *house) {
		for range 100 {
			if _, err := h.pod(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.saves > 5 {
			t.Errorf("%d saves for 100 certificates", store.saves)
		}
	})
}

// blind is an authority that publishes its roots only in replies.
type blind struct{ *ratest.CA }

func (blind) Roots(context.Context) ([]byte, error) { return nil, ca.ErrUnimplemented }
func (blind) WatchRoots(context.Context, func([]byte) error) error {
	return ca.ErrUnimplemented
}

func TestRootsInRepliesAloneAreTaken(t *testing.T) {
	inBubble(t, func(c *ra.Config) {
		c.Authorities[0].Client = blind{c.Authorities[0].Client.(*ratest.CA)}
		c.Authorities[0].Roots = ra.Roots{Unplanned: time.Minute}
	}, func(h *house) {
		if _, err := h.pod(); err != nil {
			t.Fatal(err)
		}
		next := ratest.Root(t, "second")
		time.Sleep(time.Second)
		h.ca.Set(func() { h.ca.Signs, h.ca.Published = next, nil; h.ca.Published = append(h.ca.Published, next.Cert) })
		if _, err := h.pod(); !errors.Is(err, ca.ErrUnavailable) || h.phases() != "withdrawn waiting" {
			t.Errorf("got %v: %s", err, h.phases())
		}
		time.Sleep(61 * time.Second)
		if _, err := h.pod(); err != nil {
			t.Error(err)
		}
	})
}

// Each reply has the roots, and not always the same ones.
func TestUselessRootsAreLoggedOnce(t *testing.T) {
	inBubble(t, func(c *ra.Config) {
		office := c.Authorities[0].Client.(*ratest.CA)
		for range 3 {
			leaf := certtest.SelfSigned(t, &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)})
			office.Published = append(office.Published, leaf.Cert)
		}
		c.Authorities[0].Client = blind{office}
	}, func(h *house) {
		for range 3 {
			if _, err := h.pod(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			h.ca.Set(func() { h.ca.Published = append(h.ca.Published, ratest.Root(t, "next").Cert) })
		}
		if n := strings.Count(h.log.String(), "left out"); n != 1 || !strings.Contains(h.log.String(), "count=3") {
			t.Errorf("%d lines say so: %s", n, h.log)
		}
	})
}

func TestAuthorityWithoutRootsIsNotAsked(t *testing.T) {
	inBubble(t, func(c *ra.Config) {
		office := c.Authorities[0].Client.(*ratest.CA)
		office.Published = nil
		c.Authorities[0].Timeout = 5 * time.Second
	}, func(h *house) {
		if _, err := h.pod(); !errors.Is(err, ca.ErrUnavailable) || h.ca.Issued() > 0 {
			t.Errorf("got %v, and %d certificates", err, h.ca.Issued())
		}
	})
}
