package owned

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// quarrel is how many repairs without peace are another client's doing, and not one mistake.
const quarrel = 5

// Rules bound the pauses of a [Pace].
type Rules struct {
	// Faults are the pauses after writes that failed, Repairs those after a change by another client
	// was undone: they double as long as it goes on.
	Faults, Repairs rotation.Row
	// Peace is how long an object has to stay as it is for repairs to be quick again.
	Peace time.Duration
}

// Pace is when to write an object. The zero Pace is ready.
type Pace struct {
	faults, repairs rotation.Waits
	retry, repair   time.Time // not before
	repaired        time.Time
	times           int // of repairs without peace
}

// Failed records a write that failed, and returns the pause until the next.
func (p *Pace) Failed(r *Rules, now time.Time) time.Duration {
	wait := p.faults.Next(r.Faults)
	p.retry = now.Add(wait)
	return wait
}

// Right records that the object is as it should be.
func (p *Pace) Right() {
	p.faults.Reset()
	p.retry = time.Time{}
}

// Repaired records that a change by another client was undone. It returns the pause until the next
// repair.
func (p *Pace) Repaired(r *Rules, now time.Time) time.Duration {
	wait := p.repairs.Next(r.Repairs)
	p.repaired, p.repair = now, now.Add(wait)
	p.times++
	return wait
}

// Wait returns how long to wait with a write; with one that is a repair for longer.
func (p *Pace) Wait(now time.Time, repair bool) time.Duration {
	wait := p.retry.Sub(now)
	if repair {
		wait = max(wait, p.repair.Sub(now))
	}
	return max(0, wait)
}

// Fought reports whether anything was repaired without peace since.
func (p *Pace) Fought() bool { return p.times > 0 }

// Disputed reports whether another client keeps changing the object.
func (p *Pace) Disputed() bool { return p.times >= quarrel }

// Calm makes repairs quick again after peace, and returns how long that is still to last.
func (p *Pace) Calm(r *Rules, now time.Time) (left time.Duration) {
	if left = p.repaired.Add(r.Peace).Sub(now); p.times > 0 && left > 0 {
		return left
	}
	p.Forget()
	return 0
}

// Forget forgets all repairs.
func (p *Pace) Forget() {
	p.repairs.Reset()
	p.repaired, p.repair, p.times = time.Time{}, time.Time{}, 0
}
