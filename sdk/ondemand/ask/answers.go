package ask

import (
	"hash/maphash"
	"math"
	"time"

	"golang.org/x/net/publicsuffix"
)

// hash stands for a name. Its seeds are secret, so that strangers cannot make two names collide.
type hash [2]uint64

// seconds is a time, since the Memory was made.
type seconds uint32

func (m *Memory) recall(key hash) (allowed, known bool) {
	now := m.now()
	if until, ok := m.no.Get(key); ok && now < until {
		return false, true
	}
	until, ok := m.yes.Get(key)
	return ok && now < until, ok && now < until
}

// standing returns what is known of a name without an answer.
func (m *Memory) standing(key hash) standing {
	now := m.now()
	if until, ok := m.vain.Get(key); ok && now < until {
		return unanswered
	}
	if until, ok := m.asked.Get(key); ok && now < until {
		return repeated
	}
	return fresh
}

func (m *Memory) hash(name string) hash {
	return hash{maphash.String(m.seeds[0], name), maphash.String(m.seeds[1], name)}
}

func (m *Memory) now() seconds { return secondsOf(time.Since(m.began)) }

// secondsOf rounds up, so that no answer is forgotten at once.
func secondsOf(d time.Duration) seconds {
	return seconds(min(math.Ceil(d.Seconds()), math.MaxUint32/2))
}

// domainOf returns the domain under which a name was registered, by the public suffix list: its owner
// is responsible for all names in it.
func domainOf(name string) string {
	domain, err := publicsuffix.EffectiveTLDPlusOne(name)
	if err != nil {
		return name // a public suffix itself
	}
	return domain
}
