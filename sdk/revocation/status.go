package revocation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// logged is the last logged state, so that each state is logged once.
type logged struct {
	fault, foreign, without, served string
	soon                            map[string]bool // lists that end soon
}

// report logs what has changed. Only the Set's goroutine calls it, and it holds no lock while it
// logs: a handler may ask back.
func (b *bundle) report() {
	now := b.now()
	b.mu.Lock()
	m, failure := b.made, b.failure(now)
	b.mu.Unlock()
	b.reportFailure(failure)
	if foreign := strings.Join(m.foreign, ", "); foreign != b.logged.foreign {
		b.logged.foreign = foreign
		if foreign != "" {
			b.log.Warn("revocation lists ignored, as no CA in the trust bundle has that name", "ca", text.Clean(foreign))
		}
	}
	b.reportLack(m, now)
	b.reportServed(m)
	b.announce(m, now)
}

func (b *bundle) reportFailure(failure *secret.Failure) {
	switch {
	case failure == nil:
		b.logged.fault = ""
	case failure.Text != b.logged.fault:
		b.logged.fault = failure.Text
		b.log.Warn("revocation lists are invalid", "error", failure.Text, "keeps_the_last", b.served != "")
		b.tell(failure)
	}
}

// reportLack logs the CAs whose peers are refused, or why no peer is checked.
func (b *bundle) reportLack(m made, now time.Time) {
	without := strings.Join(m.without, "; ")
	if without == b.logged.without {
		return
	}
	b.logged.without = without
	if without == "" {
		b.log.Info("every CA of the trust bundle has a current revocation list")
		return
	}
	what := "a CA has no current revocation list, and its peers are refused"
	if b.spec.Stale == Drop {
		what = "a CA has no current revocation list, and no certificate is checked for revocation, as stale is drop"
	}
	b.log.Error(what, "ca", text.Clean(without))
	b.tell(&secret.Failure{Reason: reason, Text: text.Clean(what + ": " + without), At: now})
}

func (b *bundle) tell(failure *secret.Failure) {
	b.observe(secret.Event{Kind: secret.Failed, Secret: b.spec.Name, Authority: publisher, Reason: reason, Failure: failure})
}

func (b *bundle) reportServed(m made) {
	if m.item == nil || m.item.Version == b.logged.served {
		return
	}
	b.logged.served = m.item.Version
	if m.item == m.from {
		return // without lists, which reportLack has logged
	}
	for _, s := range m.newest {
		b.log.Info("serving revocation list", "ca", nameOf(s.ca), "number", s.list.Number, "revoked", len(s.list.RevokedCertificateEntries), "next_update", s.list.NextUpdate)
	}
}

// announce warns of each list that is in the last fifth of its life: by then its successor should
// be there.
func (b *bundle) announce(m made, now time.Time) {
	soon := make(map[string]bool)
	for _, s := range m.newest {
		left, life := s.list.NextUpdate.Sub(now), s.list.NextUpdate.Sub(s.list.ThisUpdate)
		if left < 0 || left > life/5 {
			continue
		}
		key := fmt.Sprint(nameOf(s.ca), s.list.NextUpdate)
		if soon[key] = true; !b.logged.soon[key] {
			b.log.Warn("a revocation list ends soon and has no successor", "ca", nameOf(s.ca), "next_update", s.list.NextUpdate)
		}
	}
	b.logged.soon = soon
}

// Complete adds the state of the lists to that of the secrets. A nil Set adds nothing.
func (s *Set) Complete(all []secret.Status) []secret.Status {
	if s == nil {
		return all
	}
	for i := range all {
		if b := s.of(all[i].Name); b != nil && all[i].Kind == secret.TrustBundle.String() {
			b.complete(&all[i])
		}
	}
	return all
}

func (b *bundle) complete(s *secret.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.made
	s.Revocation = &secret.Revocation{
		Without: text.CleanAll(m.without), Dropped: b.spec.Stale == Drop && len(m.without) > 0, Failure: b.failure(b.now()),
	}
	for _, signed := range m.newest {
		s.Revocation.Lists = append(s.Revocation.Lists, shown(signed))
	}
	slices.SortStableFunc(s.Revocation.Lists, func(a, b secret.RevocationList) int { return strings.Compare(a.CA, b.CA) })
	if m.from != nil && m.item == nil {
		s.Held = false
	}
	if m.item != nil && s.Item == m.from {
		s.Item = m.item
	}
}

func shown(s signed) secret.RevocationList {
	list := secret.RevocationList{
		CA: text.Clean(s.ca.Subject.String()), ThisUpdate: s.list.ThisUpdate, NextUpdate: s.list.NextUpdate, Revoked: len(s.list.RevokedCertificateEntries),
	}
	if s.list.Number != nil {
		list.Number = s.list.Number.String()
	}
	return list
}
