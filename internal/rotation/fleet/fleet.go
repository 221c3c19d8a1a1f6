// Package fleet runs many agents against one quota in virtual time, to measure what their
// waits cost: [Run] takes milliseconds for days of a thousand agents.
package fleet

import (
	"container/heap"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Config describes a fleet. All agents start at once and hold nothing.
type Config struct {
	Agents int
	// Quota is how many requests the authority grants in a second; it lets a minute's worth
	// through at once.
	Quota float64
	// Life is the lifetime of a certificate.
	Life time.Duration
	// RetryInfo is the retry-after of a refusal; zero: none.
	RetryInfo time.Duration
	// Until is when the run ends.
	Until time.Duration
}

// Bound is when the last agent can have its first certificate.
func (c Config) Bound() time.Duration {
	return time.Duration(float64(c.Agents) / c.Quota * float64(time.Second))
}

// Result is what a run cost.
type Result struct {
	// Cold counts up to the first certificate of the last agent, Steady after that.
	Cold, Steady Count
	// Complete is when each agent has had a certificate; zero if that did not happen.
	Complete time.Duration
	// Used is the part of the quota that was used up to the bound.
	Used float64
	// Expired counts certificates that ended without a successor.
	Expired int
}

// Count is what an authority saw.
type Count struct{ Calls, Certificates int }

// PerCertificate returns the calls for each certificate.
func (c Count) PerCertificate() float64 { return float64(c.Calls) / float64(max(1, c.Certificates)) }

type agent struct {
	rotation rotation.Machine
	due      time.Duration
}

type fleet struct {
	Config
	began   time.Time
	agents  queue
	level   float64 // of the quota's bucket
	filled  time.Duration
	without int // agents that have had no certificate yet
	inBound int // certificates up to the bound
	result  Result
}

// Run runs a fleet.
func Run(c Config) Result {
	f := &fleet{Config: c, began: time.Now(), without: c.Agents, level: c.Quota * 60}
	for range c.Agents {
		a := &agent{}
		a.rotation.Want(true)
		f.agents = append(f.agents, a)
	}
	for f.agents[0].due <= c.Until {
		f.step(f.agents[0], f.agents[0].due)
		heap.Fix(&f.agents, 0)
	}
	f.result.Used = float64(f.inBound) / (c.Quota*c.Bound().Seconds() + c.Quota*60)
	return f.result
}

func (f *fleet) step(a *agent, now time.Duration) {
	at := rotation.Time{Wall: f.began.Add(now), Mono: f.began.Add(now)}
	do := a.rotation.Step(at)
	if do.ReportExpired {
		f.result.Expired++
	}
	if do.Ask {
		a.rotation.Begin(at)
		f.ask(a, at, now)
		do = a.rotation.Step(at)
	}
	a.due = now + max(do.Wake, time.Millisecond)
}

func (f *fleet) ask(a *agent, at rotation.Time, now time.Duration) {
	count := &f.result.Cold
	if f.without == 0 {
		count = &f.result.Steady
	}
	count.Calls++
	if !f.grants(now) {
		a.rotation.Failed(at, &ca.Error{Reason: ca.RateLimited, RetryAfter: f.RetryInfo})
		return
	}
	count.Certificates++
	if now <= f.Bound() {
		f.inBound++
	}
	if _, held := a.rotation.Held(); !held {
		if f.without--; f.without == 0 {
			f.result.Complete = now
		}
	}
	ends := at.Wall.Add(f.Life)
	a.rotation.Issued(rotation.Term{Begins: at.Wall, Renew: rotation.Renewal(0.5, 0.1, at.Wall, ends), Ends: ends})
}

// grants takes one request out of the quota.
func (f *fleet) grants(now time.Duration) bool {
	f.level = min(f.Quota*60, f.level+f.Quota*(now-f.filled).Seconds())
	f.filled = now
	if f.level < 1 {
		return false
	}
	f.level--
	return true
}

// queue is a heap of agents by due time.
type queue []*agent

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(*agent)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
