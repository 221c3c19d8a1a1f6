package ondemand_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

var errFull = errors.New("no space left on device")

// fillUp has the storage fail from the second change of a name on: the order is stored, and the
// certificate is not.
func (e *engine) fillUp() (writes *atomic.Int64) {
	writes = new(atomic.Int64)
	e.storage().fail(func() error {
		if writes.Add(1) > 1 {
			return errFull
		}
		return nil
	})
	return writes
}

func TestCertificateThatCouldNotBeStoredIsStoredLater(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		writes := e.fillUp()
		e.subscribe(aShop)
		served := e.has(aShop)
		before := writes.Load()
		after(time.Hour)
		if n := writes.Load() - before; n < 30 || n > 120 {
			t.Errorf("it was tried %d times in an hour", n)
		}
		e.storage().fail(nil)
		after(90 * time.Second)
		e.restart()
		e.subscribe(aShop)
		if e.has(aShop).Fingerprint != served.Fingerprint {
			t.Error("another certificate is served after the restart")
		}
		e.orders(1)
	})
}

func TestManyCertificatesAreStoredLaterOneByOne(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		const n = 500
		for i := range n {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
		}
		e.orders(n)
		e.storage().fail(func() error { return errFull })
		after(16 * time.Hour) // all were renewed
		e.orders(2 * n)
		e.storage().fail(nil)
		after(2 * time.Minute)
		e.restart()
		for i := range n {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
		}
		after(time.Minute)
		e.orders(2 * n)
	})
}

// A clock that is years ahead shows all certificates as ended.
func TestWrongClockDeletesNoCertificate(t *testing.T) {
	const years = 5 * 365 * 24 * time.Hour
	for title, ahead := range map[string]func(*engine){
		"at the start":  func(e *engine) { e.Close(); e.jump.Store(int64(years)); e.start() },
		"while it runs": func(e *engine) { e.jump.Store(int64(years)) },
	} {
		t.Run(title, func(t *testing.T) {
			bubble(t, stored, func(e *engine) {
				h := e.subscribe(aShop)
				served := e.has(aShop)
				h.stop()
				ahead(e)
				after(5 * time.Minute)
				e.answer(aShop, secret.ErrUnknown)
				e.jump.Store(0)
				after(time.Minute)
				e.subscribe(aShop)
				after(time.Second)
				if e.has(aShop).Fingerprint != served.Fingerprint {
					t.Error("another certificate is served, after the clock was set")
				}
				e.orders(1)
			})
		})
	}
}

func TestEndedRecordsAreDeletedADayLater(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		for i := range 20 {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i)).stop()
		}
		e.subscribe(aShop)
		e.has(aShop)
		e.Close()
		after(10 * ttl)
		e.start()
		after(time.Hour)
		if !e.storage().has(aShop) {
			t.Error("a record was deleted at once")
		}
		after(24 * time.Hour)
		if n := len(e.storage().records); n > 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

// A proxy that connects again lists all its names. A handshake of another proxy must not wait until
// these are read.
func TestRecordThatAHandshakeWaitsForIsReadFirst(t *testing.T) {
	bubble(t, slow, func(e *engine) {
		const n = 400
		name := func(i int) string { return fmt.Sprintf("n%d.shop.example.org", i) }
		for i := range n {
			e.subscribe(name(i))
		}
		after(time.Second)
		e.restart()
		for i := range n - 1 {
			e.subscribe(name(i))
		}
		after(time.Second)
		for title, one := range map[string]string{"of no list": name(n - 1), "of the list": name(0), "in its middle": name(n / 2)} {
			e.subscribe(one)
			after(2500 * time.Millisecond)
			if _, err := e.Peek(secret.Caller{}, one); err != nil {
				t.Errorf("a name %s: %v", title, err)
			}
		}
		after(2 * time.Minute)
		for i := range n {
			e.has(name(i))
		}
		e.orders(n)
	})
}
