package signing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/ra"
)

var errWrite = errors.New("forbidden")

func TestOneRequestCannotShutTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		waiting, _ := g.enter(t.Context(), "shop", passes)
		defer g.leave(waiting)
		for range 10 {
			g.Wrote("shop", "1", errWrite)
		}
		if !enters(t, g, "shop") || waiting.ctx.Err() != nil {
			t.Error("shut by one request")
		}
		g.Wrote("shop", "2", nil)
		g.Wrote("shop", "2", errWrite)
		if waiting.ctx.Err() != nil {
			t.Error("shut, and one has succeeded between")
		}
		g.Wrote("shop", "1", errWrite)
		if waiting.ctx.Err() == nil {
			t.Error("those who wait go on after two requests in a row")
		}
	})
}

// A CA may charge for each certificate, and those of trials are wasted.
func TestShutGateLetsOneTryEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		g.Wrote("shop", "1", errWrite)
		g.Wrote("shop", "2", errWrite)
		if got := trials(t, g, "shop", 10*time.Minute); got < 5 || got > 6 { // at 10, 30, 70, 150, 310 and 630 seconds, give or take a quarter
			t.Errorf("%d entered in the first 10 minutes", got)
		}
		if got := trials(t, g, "shop", 24*time.Hour); got < 140 || got > 200 {
			t.Errorf("%d entered in a day", got)
		}
		g.Wrote("shop", "3", nil)
		if !enters(t, g, "shop") {
			t.Error("shut after a success")
		}
		if len(g.waiting) != 0 {
			t.Errorf("%d are remembered", len(g.waiting))
		}
		g.Wrote("shop", "4", errWrite)
		g.Wrote("shop", "5", errWrite)
		if got := trials(t, g, "shop", 10*time.Minute); got < 5 || got > 6 {
			t.Errorf("%d entered in 10 minutes of the next fault", got)
		}
	})
}

// about allows for what is drawn.
func about(got, want time.Duration) bool { return got >= want*3/4 && got <= want*5/4 }

// trials is how many of those who come each second may enter.
func trials(t *testing.T, g *Gate, owner string, within time.Duration) (entered int) {
	t.Helper()
	for range within / time.Second {
		time.Sleep(time.Second)
		for range 3 {
			if enters(t, g, owner) {
				entered++
			}
		}
	}
	return entered
}

// passes is the dry run of a request whose status the API server would take.
func passes(context.Context) error { return nil }

// enters reports whether a request may ask for a certificate now.
func enters(t *testing.T, g *Gate, owner string) bool {
	t.Helper()
	w, ok := g.enter(t.Context(), owner, passes)
	if ok {
		g.leave(w)
	}
	return ok
}

// issues counts the certificates that an issuer is asked for.
type issues struct {
	ra.Issuer
	asked int
}

func (i *issues) Issue(context.Context, *ra.Order) (ra.Certificate, error) {
	i.asked++
	return ra.Certificate{}, nil
}

// Who owns many namespaces can make the writes of all their requests fail.
func TestOwnersWhoseWritesFailStopNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ca, tried := NewGate(), &issues{}, 0
		dry := func(context.Context) error { tried++; return nil }
		waiting, _ := g.enter(t.Context(), "shop", dry)
		defer g.leave(waiting)
		for n := range 20 {
			owner := fmt.Sprint("bad-", n)
			g.Wrote(owner, "1", errWrite)
			g.Wrote(owner, "2", errWrite)
			if enters(t, g, owner) {
				t.Errorf("open for %s", owner)
			}
		}
		synctest.Wait()
		if waiting.ctx.Err() != nil || tried != 1 {
			t.Errorf("the request that waits: %v, %d dry runs", waiting.ctx.Err(), tried)
		}
		for range 10 {
			if _, err := g.Issue(t.Context(), ca, "shop", nil, dry); err != nil {
				t.Fatal(err)
			}
		}
		if ca.asked != 10 || tried != 11 {
			t.Errorf("%d of 10 certificates, %d dry runs", ca.asked, tried)
		}
		if s, _ := g.state(); len(s.Owners) != mostNamed || s.Owners[0] != "bad-0" {
			t.Errorf("%+v", s)
		}
	})
}

// An API server that takes no writes costs the certificates of three owners, and no more.
func TestDryRunsThatFailCostNoCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ca := NewGate(), &issues{}
		fails := func(context.Context) error { return errWrite }
		waiting, _ := g.enter(t.Context(), "shop", fails)
		defer g.leave(waiting)
		for _, owner := range []string{"bank", "mill", "farm"} {
			g.Wrote(owner, "1", errWrite)
		}
		synctest.Wait()
		if waiting.ctx.Err() == nil {
			t.Error("the request that waits goes on")
		}
		for n := range 3 * mostRemembered {
			if _, err := g.Issue(t.Context(), ca, fmt.Sprint("owner-", n), nil, fails); !errors.Is(err, ErrShut) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if s, is := g.state(); !is || len(s.Owners) > 0 || ca.asked > 0 || len(g.faulty) > mostRemembered+1 {
			t.Errorf("%d certificates, %d owners are remembered, %+v", ca.asked, len(g.faulty), s)
		}
		g.Wrote("shop", "2", nil)
		if _, err := g.Issue(t.Context(), ca, "owner-1", nil, fails); err != nil || ca.asked != 1 {
			t.Errorf("after a write that succeeded: %v", err)
		}
	})
}

// An owner may be at fault itself: writes of others that succeed do not make its own succeed.
func TestSuccessOfOneOwnerOpensForNoOtherWhoseWritesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		g.Wrote("bad", "1", errWrite)
		g.Wrote("bad", "2", errWrite)
		g.Wrote("shop", "3", nil)
		if enters(t, g, "bad") {
			t.Error("open after a success of another")
		}
		g.Wrote("bad", "4", nil)
		if !enters(t, g, "bad") {
			t.Error("shut after a success of its own")
		}
	})
}

// The API server takes what is tried of an owner, but no write, such as one that is too long with a chain.
func TestOwnerWhoseWritesFailCostsFewCertificatesBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ca := NewGate(), &issues{}
		for n := range 3600 {
			request := types.UID(fmt.Sprint(n))
			if _, err := g.Issue(t.Context(), ca, "bad", nil, passes); err == nil {
				g.Wrote("bad", request, errWrite)
			}
			g.Wrote("shop", request, nil)
			time.Sleep(time.Second)
		}
		if ca.asked < 8 || ca.asked > 16 { // two, those of the first ten minutes, and one every ten minutes
			t.Errorf("%d certificates in an hour", ca.asked)
		}
	})
}

// A request that passed its dry run once, and still waits when a fault begins, makes another.
func TestEachFaultIsTriedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tried := NewGate(), 0
		wait, end := context.WithCancel(t.Context())
		doubt := func() {
			for _, owner := range []string{"bank", "mill", "farm"} {
				g.Wrote(owner, "1", errWrite)
			}
		}
		doubt()
		go func() {
			_, _ = g.Issue(wait, hangs{}, "shop", nil, func(context.Context) error { tried++; return nil })
		}()
		for want := range 3 {
			synctest.Wait()
			if tried != want+1 {
				t.Errorf("%d dry runs after %d faults", tried, want+1)
			}
			g.Wrote("bank", "2", nil)
			doubt()
		}
		end()
	})
}

// hangs is an issuer that does not answer.
type hangs struct{ ra.Issuer }

func (hangs) Issue(ctx context.Context, _ *ra.Order) (ra.Certificate, error) {
	<-ctx.Done()
	return ra.Certificate{}, ctx.Err()
}

// The end of a long fault is noticed within a minute, as a dry run that fails costs nothing.
func TestDryRunsThatFailAreMadeAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ca, tried := NewGate(), &issues{}, 0
		g.Wrote("shop", "1", errWrite)
		g.Wrote("shop", "2", errWrite)
		for range 2 * 3600 {
			_, _ = g.Issue(t.Context(), ca, "shop", nil, func(context.Context) error { tried++; return errWrite })
			time.Sleep(time.Second)
		}
		if tried < 110 || tried > 190 || ca.asked > 0 {
			t.Errorf("%d dry runs in two hours, %d certificates", tried, ca.asked)
		}
	})
}

// A request that changed, or is gone, shows nothing about others. Nor does one whose call has ended.
func TestDryRunsThatSayNothingShutNoGate(t *testing.T) {
	of := schema.GroupResource{Resource: "podcertificaterequests"}
	for _, err := range []error{apierrors.NewConflict(of, "a", errWrite), apierrors.NewNotFound(of, "a"), ErrOver} {
		g, ca := NewGate(), &issues{}
		for _, owner := range []string{"bank", "mill", "farm"} {
			g.Wrote(owner, "1", errWrite)
		}
		if _, got := g.Issue(t.Context(), ca, "shop", nil, func(context.Context) error { return err }); got != nil {
			t.Errorf("%v: %v", err, got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = g.Issue(ctx, ca, "shop", nil, func(context.Context) error { cancel(); return errWrite })
		if g.Check("shop") != nil {
			t.Errorf("%v: shut", err)
		}
	}
}

func TestShutGateReportsOwnersAndReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Gates{"example.com/mesh": NewGate(), "example.com/other": NewGate()}
		gate, began := g["example.com/mesh"], time.Now()
		gate.Wrote("shop", "1", errWrite)
		if all := g.Shut(); len(all) > 0 {
			t.Errorf("open: %+v", all)
		}
		gate.Wrote("shop", "2", errors.New("no\n"+strings.Repeat("x", 1000)))
		all := g.Shut()
		if len(all) != 1 || all[0].Signer != "example.com/mesh" || !slices.Equal(all[0].Owners, []string{"shop"}) || all[0].Forbidden {
			t.Fatalf("for one owner: %+v", all)
		}
		if all[0].Since != began || !about(all[0].Next.Sub(began), pauses.First) || len(all[0].Error) > 300 || strings.Contains(all[0].Error, "\n") {
			t.Errorf("for one owner: %+v", all[0])
		}
		time.Sleep(time.Minute)
		enters(t, gate, "shop")
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "podcertificaterequests"}, "a", errWrite)
		gate.Wrote("bank", "3", forbidden)
		gate.Wrote("mill", "4", forbidden)
		_, _ = gate.Issue(t.Context(), nil, "farm", nil, func(context.Context) error { return forbidden })
		all = g.Shut()
		if len(all) != 1 || len(all[0].Owners) > 0 || !all[0].Forbidden || !strings.Contains(all[0].Error, "podcertificaterequests") || all[0].Since != began {
			t.Errorf("for all: %+v", all)
		}
		time.Sleep(time.Minute)
		for _, owner := range []string{"mill", "farm", "shop"} {
			enters(t, gate, owner)
		}
		if next := g.Shut()[0].Next; !about(time.Until(next), 2*pauses.First) {
			t.Errorf("after a trial at %s, the next is at %s", time.Now(), next)
		}
		gate.Wrote("bank", "5", nil)
		if all := g.Shut(); len(all) != 1 || !slices.Equal(all[0].Owners, []string{"mill", "shop"}) {
			t.Errorf("after a success of another owner: %+v", all)
		}
		time.Sleep(2 * pauses.Most) // the requests of mill and shop are gone
		if all := g.Shut(); len(all) > 0 {
			t.Errorf("for owners that do not ask: %+v", all)
		}
	})
}
