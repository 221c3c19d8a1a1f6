package secret

import (
	"context"
	"crypto"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// restoreRoots loads the roots that the last run stored. Nothing runs yet. It reports and
// skips invalid records. The result restores the key pairs; nil if there are none, or the
// storage does not answer.
func (m *Manager) restoreRoots(d *directory) *restorer {
	if m.keeper == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, storageTimeout) // for all records
	defer cancel()
	for _, a := range d.authorities {
		r, err := m.keeper.load(ctx, RecordOfRoots(a.Name))
		if timedOut(err) {
			return nil
		}
		if err := a.restore(r); err != nil {
			m.keeper.refused(RecordOfRoots(a.Name), r, err)
		}
		a.publish()
	}
	if m.config.Keys != nil {
		return nil // a KeySource keeps its own keys
	}
	return newRestorer(m.keeper, d.leaves())
}

// restore takes the roots of a record that the pins allow. They count until the authority
// publishes its own; those that it does not name are then dropped roots.
func (a *authority) restore(r Record) error {
	if len(r.Content) == 0 {
		return nil
	}
	if r.Authority != a.Name || r.Identity != "" {
		return fmt.Errorf("record belongs to %.256q from authority %.256q", r.Identity, r.Authority)
	}
	roots, err := decodeRoots(r.Content)
	if err != nil {
		return err
	}
	for _, root := range roots {
		a.roots.restore(root) // the pins bound what is served of them
		a.restoring = clock.Later(a.restoring, root.until)
	}
	a.recorded = r.Content
	return nil
}

// examine returns what the leaf does to serve the key pair of a record. The leaf waits for it.
func (l *leaf) examine(r Record) (serve func()) {
	if len(r.Content) == 0 {
		return func() {}
	}
	a, err := l.verifyRecord(r)
	if err != nil {
		l.keeper.refused(RecordOf(l.name), r, err)
		return func() {}
	}
	return func() { l.takeOver(a) }
}

// verifyRecord returns the key pair of a record if it would pass as a reply to a request
// made now.
func (l *leaf) verifyRecord(r Record) (*attempt, error) {
	if r.Identity != l.spec.Identity.String() {
		return nil, fmt.Errorf("it is of identity %.256q, and %.256q is configured", r.Identity, l.spec.Identity)
	}
	at := slices.IndexFunc(l.authorities, func(a *authority) bool { return a.Name == r.Authority })
	if at < 0 {
		return nil, fmt.Errorf("it was signed by authority %.256q, which does not sign this secret", r.Authority)
	}
	kept, err := decodePair(r.Content)
	if err != nil {
		return nil, err
	}
	return l.verifyKept(l.authorities[at], kept)
}

// verifyKept verifies a stored key pair against the current settings and roots.
func (l *leaf) verifyKept(by *authority, kept keptPair) (*attempt, error) {
	a := &attempt{plan: l.plan, leaf: l, by: by}
	return a, a.restore(kept)
}

// restore fills an attempt with a stored key pair, as if the authority had replied with it now.
func (a *attempt) restore(kept keptPair) error {
	key, err := a.spec.keptKey(kept)
	if err != nil {
		return err
	}
	a.conf, a.order, a.from, a.facts = a.by.settings(), &order{key: key}, text.Clean(kept.Signer), kept.Facts
	if a.chain, err = a.check(kept.Chain, a.by.bundle.Load()); err != nil {
		return err
	}
	if a.chain.Leaf.NotBefore.After(a.by.now()) {
		return &pki.CheckError{Check: "not-before", Detail: "the certificate is not valid yet"}
	}
	if a.by.gives() {
		a.overdue = kept.RenewAt
	}
	if a.item, err = a.newItem(kept.Issued); err != nil {
		return err
	}
	if kept.Ratio == a.spec.RenewRatio && kept.Jitter == a.spec.RenewJitter && kept.RenewAt.Before(a.chain.Ends) {
		a.item.RenewAt = kept.RenewAt // drawn once, with these settings
	}
	return nil
}

func (s Spec) keptKey(kept keptPair) (crypto.Signer, error) {
	want, _ := pki.ParseKeyType(string(s.KeyType)) // the Spec was checked
	if kept.KeyType != want {
		return nil, fmt.Errorf("its key is of type %.64q, and %q is configured", kept.KeyType, want)
	}
	return pki.ParseKey(kept.Key)
}

// takeOver serves a verified key pair.
func (l *leaf) takeOver(a *attempt) {
	item := a.item
	l.by, l.held, l.restored = a.by, a.chain, true
	l.rotation.Hold(termOf(item))
	l.advisable(l.now(), item.Issued)
	if l.authorities[0].settings().Token != nil {
		l.credential = credential{doubt: true} // read the token again; that alone requests no certificate
		l.lookForToken()
	}
	a.by.quietly(func() { a.by.ends.set(l, a.chain.Ends) })
	l.put(item)
	l.publish(l.now())
	l.log.Info("serving certificate restored from state", "authority", a.by.Name, "identity", item.Identity.String(),
		"serial", item.Serial, "fingerprint", item.Fingerprint, "not_after", item.NotAfter, "renew_at", item.RenewAt)
	l.emit(a.by, Event{Kind: Restored, NotAfter: item.NotAfter})
}

// store saves the item for the next run.
func (l *leaf) store(item *Item) {
	if l.keeper == nil || len(item.Key) == 0 || l.config.Keys != nil {
		return
	}
	l.keeper.put(RecordOf(l.spec.Name), Record{
		Identity: l.spec.Identity.String(), Authority: item.Authority, Content: encode(l.spec.keep(item)),
	})
}

// keep returns what is stored of an item.
func (s Spec) keep(item *Item) keptPair {
	keyType, _ := pki.ParseKeyType(string(s.KeyType)) // the Spec was checked
	return keptPair{
		Version: recordVersion, KeyType: keyType, Key: item.Key, Chain: item.Chain, Signer: item.Signer, Facts: item.facts,
		Issued: item.Issued, RenewAt: item.RenewAt, Ratio: s.RenewRatio, Jitter: s.RenewJitter,
	}
}

// rootsWithoutLeaf is how long a record may restore the roots of an authority that has
// signed nothing here. The record is renewed twice in that time.
const rootsWithoutLeaf = 24 * time.Hour

// store saves the roots for the next run if the record would change. The record restores
// no root beyond the last certificate held under it, so an old record is worth no more
// than an old certificate.
func (a *authority) store(served *pki.Bundle) {
	if a.keeper == nil || a.retired || served.Len() == 0 {
		return
	}
	last := a.lastEnd()
	if last.IsZero() {
		last = a.now().Truncate(rootsWithoutLeaf / 2).Add(rootsWithoutLeaf)
	}
	kept := keptRoots{Version: recordVersion}
	for _, cert := range served.Certificates() {
		until := last
		if d, dropped := a.roots.dropped[pki.Fingerprint(cert)]; dropped {
			until = d.until
		}
		kept.Roots = append(kept.Roots, keptRoot{cert.Raw, until.UTC()})
	}
	content := encode(kept)
	if string(content) == string(a.recorded) {
		return
	}
	a.recorded = content
	a.keeper.put(RecordOfRoots(a.Name), Record{Authority: a.Name, Content: content})
}
