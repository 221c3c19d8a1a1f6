package revocation_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/revocation"
)

// publisher is a CA that publishes lists.
type publisher struct {
	answer atomic.Pointer[func(context.Context) ([]byte, error)]
	calls  atomic.Int32
}

func (p *publisher) Revocations(ctx context.Context) ([]byte, error) {
	p.calls.Add(1)
	return (*p.answer.Load())(ctx)
}

func (p *publisher) does(f func(context.Context) ([]byte, error)) { p.answer.Store(&f) }

func (p *publisher) says(err error, lists ...[]byte) {
	p.does(func(context.Context) ([]byte, error) { return bytes.Join(lists, nil), err })
}

// asked returns how often it was asked while time passes.
func (p *publisher) asked(d time.Duration) int {
	before := p.calls.Load()
	time.Sleep(d)
	synctest.Wait()
	return int(p.calls.Load() - before)
}

// publish serves the CA's roots, with the publisher's lists.
func publish(t *testing.T, authority *catest.CA, p *publisher, change func(*revocation.Bundle)) *bundle {
	t.Helper()
	b := serve(t, authority, func(b *revocation.Bundle) {
		b.Files, b.Feeds = nil, []revocation.Feed{{Name: "vault", Follow: revocation.Poll(revocation.Polled{Source: p})}}
		if change != nil {
			change(b)
		}
	})
	synctest.Wait()
	return b
}

func TestListsOfCAAreServedAndAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		first, second := ca.CRLs(catest.CRL{Number: 1}), ca.CRLs(catest.CRL{Number: 2})
		p := new(publisher)
		p.says(nil, first...)
		b := publish(t, ca, p, nil)
		b.has("at once", first...)
		before := b.pushed()
		p.says(nil, second...)
		if n := p.asked(10 * time.Minute); n < 1 || n > 3 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
		b.has("the next time", second...)
		if n := b.pushed() - before; n != 1 {
			t.Errorf("%d pushes", n)
		}
		p.says(nil, first...)
		p.asked(6 * time.Minute)
		b.has("it went back", second...)
		b.fails("it went back", "went back from number 2 to 1")
	})
}

func TestListOfCAStaysWhileCAIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		lists := authority.CRLs(catest.CRL{NextUpdate: time.Now().Add(24 * time.Hour)})
		p := new(publisher)
		p.says(nil, lists...)
		b := publish(t, authority, p, nil)
		for name, says := range map[string]func(){
			"away":         func() { p.says(ca.Errorf(ca.Unavailable, "no route")) },
			"no lists":     func() { p.says(nil) },
			"no list":      func() { p.says(nil, []byte("a page of HTML")) },
			"a forged one": func() { p.says(nil, forged(t, authority)) },
		} {
			says()
			b.set.Retry("vault")
			p.asked(time.Minute)
			b.has(name, lists...)
			if f := b.state().Failure; f == nil || !strings.Contains(f.Text, "vault: ") && !strings.Contains(f.Text, "not signed by") {
				t.Errorf("%s: the failure is %+v", name, f)
			}
		}
		p.says(nil, lists...)
		p.asked(time.Hour)
		b.fails("it is back", "")
	})
}

// forged returns a list in the name of another CA of the same name.
func forged(t *testing.T, of *catest.CA) []byte {
	t.Helper()
	other := catest.NewCA(catest.Options{})
	if !bytes.Equal(of.Bundle().Certificates()[0].RawSubject, other.Bundle().Certificates()[0].RawSubject) {
		t.Fatal("the CAs have two names")
	}
	return other.CRLs(catest.CRL{Number: 99})[0]
}

func TestCAThatIsAwayAtTheStartIsAskedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		p := new(publisher)
		p.says(ca.Errorf(ca.Unavailable, "no route"))
		b := publish(t, authority, p, nil)
		if n := p.asked(10 * time.Minute); n < 30 || n > 120 {
			t.Errorf("asked %d times in 10 minutes, want about every 10 s", n)
		}
		b.fails("away", "vault: unavailable: no route")
		lists := authority.CRLs(catest.CRL{})
		p.says(nil, lists...)
		b.set.Retry("another")
		if n := p.asked(time.Millisecond); n > 0 {
			t.Errorf("asked %d times as another CA is ready", n)
		}
		b.set.Retry("vault")
		p.asked(time.Millisecond)
		b.has("asked anew at once", lists...)
	})
}

func TestCAThatLacksAbilityIsRarelyAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(publisher)
		p.says(ca.Errorf(ca.Unimplemented, "no such ability"))
		b := publish(t, catest.NewCA(catest.Options{}), p, nil)
		if n := p.asked(time.Hour); n < 6 || n > 10 {
			t.Errorf("asked %d times in an hour", n)
		}
		b.fails("the status shows it", "vault: unimplemented: no such ability")
	})
}

func TestListThatEndsSoonIsAskedForInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		p := new(publisher)
		p.does(func(context.Context) ([]byte, error) {
			return authority.CRLs(catest.CRL{Number: time.Now().UnixNano(), NextUpdate: time.Now().Add(2 * time.Minute)})[0], nil
		})
		b := publish(t, authority, p, nil)
		for range 60 {
			p.asked(10 * time.Second)
			b.lacks("a list of two minutes")
		}
		if n := p.calls.Load(); n > 15 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
		// A CA that makes no new list is not hammered.
		last := authority.CRLs(catest.CRL{Number: time.Now().UnixNano(), NextUpdate: time.Now().Add(2 * time.Minute)})
		p.says(nil, last...)
		if n := p.asked(10 * time.Minute); n > 25 {
			t.Errorf("asked %d times in 10 minutes for a list that has ended", n)
		}
		b.lacks("it ended", "has one that ended")
	})
}

func TestCAThatHangsCostsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		over := make(chan struct{})
		p := new(publisher)
		p.does(func(context.Context) ([]byte, error) { <-over; return nil, ca.ErrUnavailable })
		file, path := authority.CRLs(catest.CRL{}), filepath.Join(t.TempDir(), "crl.pem")
		b := publish(t, authority, p, func(b *revocation.Bundle) { b.Files = []string{path} })
		b.file = path
		b.write(file...)
		if n := p.asked(10 * time.Minute); n > 0 || p.calls.Load() != 1 {
			t.Errorf("asked %d times more", n)
		}
		b.has("the file does not wait", file...)
		b.fails("the status shows it", "vault: ")
		b.set.Close()
		close(over)
	})
}
