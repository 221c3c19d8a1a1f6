package ondemand_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const shopA = "a.shop.example.org"

func TestMachinesShareOneOrder(t *testing.T) {
	machines(t, 3, nil, func(f *fleet) {
		f.ca.delay.Store(int64(3 * time.Second))
		for _, e := range f.engines {
			for range 10 {
				e.subscribe(shopA)
			}
		}
		after(6 * time.Second)
		first := f.engines[0].has(shopA)
		for _, e := range f.engines {
			if got := e.has(shopA); got.Fingerprint != first.Fingerprint || string(got.Key) != string(first.Key) {
				t.Errorf("%v, want %v", got, first)
			}
		}
		f.distinct(1)
		issued, shared := uint64(0), uint64(0)
		for _, e := range f.engines {
			issued, shared = issued+e.rule().Issued, shared+e.rule().Shared
		}
		if issued != 1 || shared != 2 || len(f.claims) != 0 {
			t.Errorf("%d issued, %d shared, %d claims are left", issued, shared, len(f.claims))
		}
	})
}

func TestRenewalByOneMachineReachesTheOthers(t *testing.T) {
	machines(t, 3, nil, func(f *fleet) {
		for _, e := range f.engines {
			e.subscribe(shopA)
		}
		after(5 * time.Second)
		for days := range 2 {
			before := f.engines[0].has(shopA)
			after(ttl)
			now := f.engines[0].has(shopA)
			if now.Fingerprint == before.Fingerprint {
				t.Fatalf("day %d: it was not renewed", days)
			}
			for _, e := range f.engines {
				if e.has(shopA).Fingerprint != now.Fingerprint {
					t.Errorf("day %d: a machine serves another certificate", days)
				}
			}
		}
		orders := 0
		f.ca.ids.Range(func(any, any) bool { orders++; return true })
		if orders < 3 || orders > 6 {
			t.Errorf("%d orders in two days, want one for each renewal", orders)
		}
	})
}

// A machine is killed at each step of its order. The other one continues it, or makes the only one.
func TestSuccessorContinuesTheOrderOfAKilledMachine(t *testing.T) {
	for n, step := range []string{"claim", "load", "store", "stored", "the authority", "store", "stored", "release"} {
		t.Run(fmt.Sprint(n, " ", step), func(t *testing.T) {
			machines(t, 2, nil, func(f *fleet) {
				f.ca.hang.Store(step == "the authority")
				steps := 0
				if n > 4 {
					steps = 1
				}
				f.machines[0].set(func() {
					f.machines[0].step = func(got string) {
						if got == "changes" {
							return
						}
						if steps++; steps == n+1 && step != "the authority" {
							f.machines[0].set(func() { f.machines[0].dead = true })
						}
					}
				})
				f.engines[0].subscribe(shopA)
				after(10 * time.Millisecond)
				f.engines[1].subscribe(shopA)
				f.kill(0)
				f.ca.hang.Store(false)
				began := time.Now()
				for range 30 {
					if _, err := f.engines[1].Peek(secret.Caller{}, shopA); err == nil {
						break
					}
					f.engines[1].subscribe(shopA) // a handshake fails after rule.Wait; its client tries again
					after(time.Second)
				}
				f.engines[1].has(shopA)
				f.distinct(1)
				t.Logf("served after %s", time.Since(began))
			})
		})
	}
}

// The holder of a claim hangs, and comes back after another machine has finished its order.
func TestHolderThatHangsOverwritesNothing(t *testing.T) {
	machines(t, 2, nil, func(f *fleet) {
		f.ca.hang.Store(true)
		f.engines[0].subscribe(shopA)
		after(10 * time.Millisecond)
		f.machines[0].set(func() { f.machines[0].dead = true })
		f.ca.hang.Store(false)
		f.engines[1].subscribe(shopA)
		for range 20 {
			after(time.Second)
			f.engines[1].subscribe(shopA)
		}
		done := f.engines[1].has(shopA)
		f.machines[0].set(func() { f.machines[0].dead = false })
		after(2 * time.Minute)
		f.engines[0].subscribe(shopA)
		after(2 * time.Second)
		if got := f.engines[0].has(shopA); got.Fingerprint != done.Fingerprint {
			t.Error("the machine that hung serves another certificate")
		}
		f.distinct(1)
	})
}

func TestStorageThatIsAwayStopsNoHeldName(t *testing.T) {
	away := ca.Errorf(ca.Unavailable, "the folder is away")
	machines(t, 2, nil, func(f *fleet) {
		for _, e := range f.engines {
			e.subscribe(shopA)
		}
		after(3 * time.Second)
		held := f.engines[0].has(shopA)
		for _, m := range f.machines {
			m.set(func() { m.away = away })
		}
		f.engines[0].subscribe("new.shop.example.org")
		after(2 * time.Second) // once the next attempt would come after rule.Wait, it is refused
		f.engines[0].answer("new.shop.example.org", secret.ErrNotReady)
		after(time.Until(held.RenewAt) + 2*time.Hour)
		if f.engines[0].has(shopA).Fingerprint != held.Fingerprint {
			t.Error("it was renewed without a claim, long before its end")
		}
		f.distinct(1)
		after(time.Until(held.NotAfter) - time.Hour)
		for _, e := range f.engines { // an outage would be worse than an order of each machine
			if e.has(shopA).Fingerprint == held.Fingerprint {
				t.Error("it was not renewed near its end")
			}
		}
		f.distinct(3)
		for _, m := range f.machines {
			m.set(func() { m.away = nil })
		}
		f.engines[0].subscribe("new.shop.example.org")
		after(20 * time.Second)
		f.engines[0].subscribe("new.shop.example.org")
		after(5 * time.Second)
		f.engines[0].has("new.shop.example.org")
		after(2 * time.Minute)
		if f.engines[0].has(shopA).Fingerprint != f.engines[1].has(shopA).Fingerprint || f.engines[0].has(shopA).Fingerprint == held.Fingerprint {
			t.Error("the machines do not agree on one certificate once the storage is back")
		}
	})
}

func TestStorageThatIsAwayAtTheStartIsReadLater(t *testing.T) {
	machines(t, 2, nil, func(f *fleet) {
		f.engines[0].subscribe(shopA)
		held := f.engines[0].has(shopA)
		f.engines[1].Close()
		f.machines[1].set(func() { f.machines[1].away = ca.Errorf(ca.Unavailable, "away"); f.machines[1].seen = nil })
		f.engines[1].start()
		f.engines[1].subscribe(shopA)
		f.engines[1].answer(shopA, secret.ErrNotReady)
		f.machines[1].set(func() { f.machines[1].away = nil })
		after(5 * time.Second)
		if f.engines[1].has(shopA).Fingerprint != held.Fingerprint {
			t.Error("another certificate was ordered")
		}
		f.distinct(1)
	})
}

// The clocks of the machines are hours apart, in both directions.
func TestClocksOfMachinesMayDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{5 * time.Hour, -5 * time.Hour, 20 * time.Hour} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			machines(t, 2, nil, func(f *fleet) {
				f.engines[1].jump.Store(int64(ahead))
				f.ca.delay.Store(int64(2 * time.Second))
				f.engines[0].subscribe(shopA)
				after(10 * time.Millisecond)
				f.engines[1].subscribe(shopA)
				after(time.Second)
				f.distinct(1) // the claim is judged by no clock
				after(5 * time.Second)
				first := f.engines[0].has(shopA)
				after(time.Minute)
				if !f.has(shopA) {
					t.Error("the record was deleted")
				}
				after(time.Hour)
				orders := 0
				f.ca.ids.Range(func(any, any) bool { orders++; return true })
				if orders > 3 {
					t.Errorf("%d orders in an hour", orders)
				}
				if ahead == 5*time.Hour && f.engines[1].has(shopA).Fingerprint != first.Fingerprint {
					t.Error("the machines serve different certificates")
				}
			})
		})
	}
}

// A machine whose clock is far ahead sees each certificate as ended. It deletes none, unless the clock of the
// storage shows the same.
func TestClockOfOneMachineDeletesNoRecord(t *testing.T) {
	const long = 5 * 24 * time.Hour
	for name, ahead := range map[string]struct{ machine, storage time.Duration }{
		"the machine's": {2 * long, 0}, "the storage's": {0, 2 * long}, "both": {2 * long, 2 * long},
	} {
		t.Run(name, func(t *testing.T) {
			machines(t, 2, func(_ int, c *ondemand.Config) { c.Rules[0].Certificate.TTL, c.Rules[0].Idle = long, time.Hour }, func(f *fleet) {
				for _, m := range f.machines {
					m.set(func() { m.poll = 10 * time.Minute })
				}
				h := f.engines[0].subscribe(shopA)
				f.engines[0].has(shopA)
				h.stop()
				after(time.Hour)
				f.mu.Lock()
				f.jump = ahead.storage
				f.mu.Unlock()
				f.engines[1].jump.Store(int64(ahead.machine))
				after(40 * time.Hour)
				if want := name != "both"; f.has(shopA) != want {
					t.Errorf("the record is there: %t, want %t", !want, want)
				}
				if name != "the machine's" {
					return
				}
				f.distinct(1)
				f.engines[0].Close()
				after(long) // once it has ended, it is deleted
				if f.has(shopA) {
					t.Error("a record whose certificate has ended was not deleted")
				}
				if n := f.engines[1].Status(); len(n.Rules) == 0 || n.Rules[0].Names > 0 {
					t.Errorf("%+v", n)
				}
			})
		})
	}
}

// A shared folder that hangs must not keep an agent from its other secrets.
func TestStorageThatHangsDelaysNoStart(t *testing.T) {
	machines(t, 1, nil, func(f *fleet) {
		e, m := f.engines[0], f.machines[0]
		e.Close()
		m.set(func() { m.dead = true })
		began := time.Now()
		e.start()
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("the start took %s", took)
		}
		m.set(func() { m.dead = false })
		e.subscribe(shopA)
		after(15 * time.Second)
		e.subscribe(shopA)
		after(5 * time.Second)
		e.has(shopA)
	})
}

func TestRefusedOrderIsSentByNoOtherMachine(t *testing.T) {
	machines(t, 2, nil, func(f *fleet) {
		f.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		f.engines[0].subscribe(shopA)
		after(time.Second)
		if f.has(shopA) {
			t.Error("the refused order is in the storage still")
		}
		f.ca.Always(catest.Fault{})
		f.engines[1].subscribe(shopA)
		after(2 * time.Second)
		f.engines[1].has(shopA)
		f.distinct(2)
	})
}

// A machine that has no use for a name any more must not delete what another one uses.
func TestNameInUseElsewhereIsNotDeleted(t *testing.T) {
	denies := &asker{say: answers(false, nil)}
	machines(t, 2, func(i int, c *ondemand.Config) {
		c.Rules[0].Idle = time.Hour
		if i == 1 {
			c.Rules[0].Ask = denies
		}
	}, func(f *fleet) {
		f.engines[0].subscribe(shopA)
		f.engines[0].has(shopA)
		h := f.engines[1].subscribe(shopA) // too early to know of it: it is asked about, and refused
		after(time.Second)
		h.stop()
		for range 8 {
			after(ttl / 2)
			f.engines[0].has(shopA)
			if !f.has(shopA) {
				t.Fatal("the record was deleted")
			}
		}
		f.engines[1].restart()
		f.engines[1].subscribe(shopA)
		after(2 * time.Second)
		f.engines[1].has(shopA) // it is served to its end
	})
}

// The configuration of a machine may be another one for a while, which then cannot use the record.
func TestRecordThatAMachineCannotUseIsNotDeleted(t *testing.T) {
	denies := &asker{say: func(context.Context, string) (bool, error) { time.Sleep(6 * time.Second); return false, nil }}
	machines(t, 2, func(i int, c *ondemand.Config) {
		if i == 1 {
			c.Rules[0].Certificate.KeyType, c.Rules[0].Ask = "rsa-2048", denies
		}
	}, func(f *fleet) {
		f.ca.delay.Store(int64(3 * time.Second))
		f.engines[0].subscribe(shopA)
		after(2 * time.Second) // the other one knows of the order
		f.engines[1].subscribe(shopA)
		after(20 * time.Second)
		f.engines[0].has(shopA)
		f.engines[1].answer(shopA, secret.ErrUnknown)
		if !f.has(shopA) {
			t.Error("the record was deleted")
		}
	})
}

// A machine with another configuration, whose order is refused, takes nothing from the others.
func TestRecordThatAMachineCannotUseIsNotReplacedByItsOrder(t *testing.T) {
	machines(t, 2, func(i int, c *ondemand.Config) {
		if i == 1 {
			c.Rules[0].Certificate.KeyType = "rsa-2048"
		}
	}, func(f *fleet) {
		f.engines[0].subscribe(shopA)
		held := f.engines[0].has(shopA)
		f.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		f.engines[1].subscribe(shopA)
		after(10 * time.Second)
		f.engines[1].answer(shopA, secret.ErrUnknown)
		f.engines[0].restart()
		f.engines[0].subscribe(shopA)
		after(5 * time.Second)
		if f.engines[0].has(shopA).Fingerprint != held.Fingerprint {
			t.Error("another certificate is served after a restart")
		}
		f.ca.Always(catest.Fault{})
		after(time.Hour)
		f.engines[1].subscribe(shopA)
		after(10 * time.Second)
		f.engines[1].has(shopA)
	})
}

// One machine begins an order, another one gets its certificate.
func TestOrderThatAnotherMachineFinishedIsNotSentAgain(t *testing.T) {
	pending := func(again time.Duration) catest.Fault {
		return catest.Fault{Err: &ca.Error{Reason: ca.Pending, RetryAfter: again}}
	}
	t.Run("new", func(t *testing.T) {
		machines(t, 2, nil, func(f *fleet) {
			f.ca.Always(pending(5 * time.Second))
			f.engines[0].subscribe(shopA)
			after(time.Second)
			f.ca.Always(catest.Fault{})
			f.engines[1].subscribe(shopA)
			after(3 * time.Second)
			item := f.engines[1].has(shopA)
			f.kill(1)
			after(5 * time.Second)
			f.distinct(1)
			if f.engines[0].has(shopA).Fingerprint != item.Fingerprint || f.engines[0].rule().Pending != 0 {
				t.Error("the machine that began serves another certificate, or has the order still")
			}
			after(time.Until(item.NotAfter) - 8*time.Hour)
			f.engines[0].has(shopA)
			f.distinct(2)
		})
	})
	t.Run("renewal", func(t *testing.T) {
		machines(t, 2, nil, func(f *fleet) {
			f.engines[0].subscribe(shopA)
			f.engines[1].subscribe(shopA)
			after(3 * time.Second)
			f.ca.Always(pending(10 * time.Minute))
			after(time.Until(f.engines[0].has(shopA).NotAfter) - 6*time.Hour)
			f.distinct(2)
			f.ca.Always(catest.Fault{})
			after(15 * time.Minute) // one of them has finished it
			f.distinct(2)
			item := f.engines[0].has(shopA)
			if f.engines[1].has(shopA).Fingerprint != item.Fingerprint {
				t.Error("the machines serve different certificates")
			}
			for _, e := range f.engines {
				if e.rule().Pending != 0 {
					t.Error("a machine has the order still")
				}
			}
			after(time.Until(item.NotAfter) - 8*time.Hour)
			f.engines[0].has(shopA)
			f.distinct(3)
		})
	})
}

func TestEvictedNameIsServedWhereItIsUsed(t *testing.T) {
	machines(t, 2, func(i int, c *ondemand.Config) {
		c.Rules[0].Evict = true
		if i == 1 {
			c.Rules[0].Names = 1
		}
	}, func(f *fleet) {
		f.engines[0].subscribe(shopA)
		held := f.engines[0].has(shopA)
		after(2 * time.Second) // the other one knows of it
		f.engines[1].subscribe("b.shop.example.org")
		after(5 * time.Second)
		f.engines[1].has("b.shop.example.org")
		if f.has(shopA) {
			t.Error("the evicted name is in the storage still")
		}
		if f.engines[0].has(shopA) != held {
			t.Error("another certificate is served")
		}
		after(ttl)
		if f.engines[0].has(shopA).Fingerprint == held.Fingerprint || !f.has(shopA) {
			t.Error("it is not renewed, or not stored again")
		}
	})
}

func TestUnusedNamesLeaveTheStorageInTheEnd(t *testing.T) {
	machines(t, 2, func(_ int, c *ondemand.Config) { c.Rules[0].Idle = time.Hour }, func(f *fleet) {
		h := f.engines[0].subscribe(shopA)
		f.engines[0].has(shopA)
		h.stop()
		after(ttl + 6*time.Hour)
		if !f.has(shopA) {
			t.Error("the record was deleted at once: the clock of this machine may be wrong")
		}
		if st := f.engines[0].rule(); st.Expired != 0 {
			t.Errorf("an unused name counts as expired: %+v", st)
		}
		after(30 * time.Hour)
		if f.has(shopA) {
			t.Error("the record was not deleted")
		}
		for _, e := range f.engines {
			if n := e.rule().Names; n != 0 {
				t.Errorf("%d names are left", n)
			}
		}
	})
}

// A record of before, put back, replaces nothing that is newer.
func TestReplayedRecordReplacesNothing(t *testing.T) {
	machines(t, 2, nil, func(f *fleet) {
		for _, e := range f.engines {
			e.subscribe(shopA)
		}
		after(3 * time.Second)
		f.mu.Lock()
		record, index := f.records[shopA], f.index[shopA]
		f.mu.Unlock()
		after(15 * time.Hour)
		now := f.engines[0].has(shopA)
		f.mu.Lock()
		f.records[shopA], f.index[shopA] = record, index
		f.mu.Unlock()
		after(5 * time.Second)
		for _, e := range f.engines {
			if e.has(shopA).Fingerprint != now.Fingerprint {
				t.Error("an older certificate is served again")
			}
		}
	})
}

func TestClaimThatCannotBeReleasedRunsOut(t *testing.T) {
	machines(t, 2, nil, func(f *fleet) {
		f.machines[0].set(func() {
			f.machines[0].step = func(step string) {
				if step == "release" {
					f.machines[0].set(func() { f.machines[0].away = errors.New("an input/output error") })
				}
			}
		})
		f.engines[0].subscribe(shopA)
		first := f.engines[0].has(shopA)
		f.engines[1].subscribe(shopA)
		after(3 * time.Second)
		if f.engines[1].has(shopA).Fingerprint != first.Fingerprint {
			t.Error("it was ordered twice")
		}
		synctest.Wait()
		f.distinct(1)
	})
}

// A record has the rules that its certificate was verified by. Who writes in the storage can change them,
// and put the certificate of another name there.
func TestRecordWithAnotherNamesCertificateIsNotServed(t *testing.T) {
	const other = "b.shop.example.org"
	machines(t, 2, nil, func(f *fleet) {
		f.engines[1].Close()
		f.engines[0].subscribe(shopA)
		f.engines[0].subscribe(other)
		foreign := f.engines[0].has(other)
		f.engines[0].has(shopA)
		f.engines[0].Close()
		f.mu.Lock()
		var content map[string]json.RawMessage
		var pair map[string]any
		if json.Unmarshal(f.records[other].Content, &content) != nil || json.Unmarshal(content["pair"], &pair) != nil {
			t.Fatal("the form of a record is another one")
		}
		pair["facts"] = ca.Facts{NameMatch: ca.MatchAny}
		changed := f.records[shopA]
		content["pair"], _ = json.Marshal(pair)
		changed.Content, _ = json.Marshal(content)
		f.records[shopA] = changed
		f.mu.Unlock()
		f.engines[1].start()
		f.engines[1].subscribe(shopA)
		after(5 * time.Second)
		if got := f.engines[1].has(shopA); got.Fingerprint == foreign.Fingerprint {
			t.Error("the certificate of another name is served")
		}
	})
}
