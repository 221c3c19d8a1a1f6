package ondemand

import (
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// orderFor is how long an order that was sent goes on after the last subscription, and
	// lateFor how long one waits to be sent.
	orderFor = time.Hour
	lateFor  = time.Minute
	// retryFor is how long a renewal is tried after the end of the certificate, and after the
	// last subscription: the DNS records of the name may lead elsewhere by now.
	retryFor = 24 * time.Hour
)

// entry is one name. The scheduler's lock guards it.
type entry struct {
	schedule.Entry
	name     string
	rule     *rule
	watchers watchers.Set[func()]
	// spellings counts the subscriptions by name as asked for, where that is not name.
	spellings map[string]int

	decided  bool           // it may be ordered, and counts in rule.held
	deciding bool           // Ask is being called
	again    rotation.Pause // until Ask is called again, or the record is read
	giveUp   func()         // ends that call
	waiting  bool           // subscribers wait for a certificate
	late     bool           // they did so for too long
	wait     rotation.Pause // for so long
	counted  *int           // rule.held, rule.deciding, rule.covered, or nil
	asked    time.Time      // the last subscription
	used     time.Time      // when the last subscription began or ended

	stored  bool          // Storage has a record
	known   term          // of that record, if it is shared
	stale   bool          // another machine has stored a certificate that is yet to be read
	loading bool          // it is being read
	loadAt  int           // its place in loads.waiting, from 1; 0: it is read now
	saving  bool          // its certificate is being stored again
	lost    uint8         // attempts to read it that failed
	order   *secret.Order // to be sent again
	refused bool          // the last order that was sent
	vain    *secret.Order // that order
	denied  bool          // the last renewal, before it was sent
	failure *secret.Failure
	cover   *secret.Item // served in place of its own certificate
}

// recount counts the entry where it belongs by now.
func (e *entry) recount() {
	if e.counted != nil {
		*e.counted--
	}
	switch {
	case e.Gone():
		e.counted = nil
		return
	case e.cover != nil && !e.held():
		e.counted = &e.rule.covered
	case e.decided:
		e.counted = &e.rule.held
	default:
		e.counted = &e.rule.deciding
	}
	*e.counted++
}

// held reports whether the entry has or had a certificate, in memory or in Storage.
func (e *entry) held() bool {
	_, held := e.Rotation.Held()
	return held
}

// ordered forgets the last order and its failure, as this machine or another one has a certificate since.
func (e *entry) ordered() {
	e.failure, e.order, e.vain, e.refused, e.denied = nil, nil, nil, false, false
}

func (e *entry) ends() time.Time {
	term, _ := e.Rotation.Held()
	return term.Ends
}

// unread reports whether the certificate is valid, and in Storage only.
func (e *entry) unread(now time.Time) bool {
	return e.Item == nil && e.stored && e.held() && now.Before(e.ends())
}

// longestWait returns how long a subscription may wait. A proxy that subscribes again after a restart
// has the certificate that is yet to be read, and a refusal would take it away.
func (e *entry) longestWait(now time.Time) time.Duration {
	if e.unread(now) {
		return max(e.rule.conf.Wait, readWait)
	}
	return e.rule.conf.Wait
}

func (e *entry) asking() bool { return e.Rotation.Asking() || e.deciding || e.loading || e.saving }

// inUse reports whether a client subscribes to the name, or did lately.
func (e *entry) inUse(now time.Time) bool {
	return e.watchers.Len() > 0 || now.Before(e.used.Add(e.rule.conf.Idle))
}

// wanted reports whether to order a certificate once one is due.
func (e *entry) wanted(now time.Time) bool {
	switch {
	case !e.decided || e.rule.removed || e.cover != nil:
		return false
	case e.waiting:
		return true
	case !e.held():
		sent := e.order != nil || e.stored
		return sent && now.Before(e.asked.Add(orderFor)) || e.late && now.Before(e.asked.Add(lateFor))
	}
	return e.inUse(now) && now.Before(clock.Later(e.ends(), e.asked).Add(retryFor))
}

// over reports whether the entry is needed no longer.
func (e *entry) over(now rotation.Time) bool {
	switch {
	case e.asking() || e.waiting || e.Rotation.Waiting():
		return false
	case e.held() && now.Wall.Before(e.ends()):
		return false
	case e.cover != nil:
		return e.watchers.Len() == 0
	case e.held():
		return e.denied || !e.wanted(now.Wall)
	}
	return !e.wanted(now.Wall) && e.Rotation.Pausing(now) == 0
}

// item returns what is served under the name; nil for nothing.
func (e *entry) item(now time.Time) *secret.Item {
	switch {
	case e.Valid(now):
		return e.Item
	case e.cover != nil && !e.cover.Expired(now):
		return e.cover
	}
	return nil
}
