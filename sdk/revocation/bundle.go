package revocation

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// bundle is one trust bundle with its lists.
type bundle struct {
	spec    Bundle
	source  secret.Source
	now     func() time.Time
	observe func(secret.Event)
	log     *slog.Logger
	notify  func() // wakes the watchers
	wake    func() // has the Set look
	renew   func(name string) error

	// Owned by the Set's goroutine:
	feeds      []*listener // fixed
	cancel     context.CancelFunc
	heard      sync.WaitGroup
	stops      []func() // the watches of the source
	signatures signatures
	renewing   map[string]renewal // of revoked certificates, by key pair

	mu       sync.Mutex
	contents map[string]content // by path, what was last good
	faults   []string           // of the files, when they were last read
	replies  []reply            // by the feeds of the spec
	reads    int                // how often a content changed
	held     []*x509.RevocationList
	made     made      // replaced by the Set's goroutine alone
	fault    string    // why the newest lists were not taken
	since    time.Time // since when

	served string // the version that the watchers know; owned by the Set's goroutine
	logged logged // what was logged; owned by the Set's goroutine
}

// content is what one file holds.
type content struct {
	text    []byte
	lists   []*x509.RevocationList
	issuers []*x509.Certificate
}

// made is a dressed bundle, and what it was made of.
type made struct {
	from   *secret.Item
	chains []*secret.Item
	reads  int
	at     time.Time // when
	verdict
	revoked []revoked
	item    *secret.Item // nil: there is nothing to serve
}

// look reads the files, judges the lists, notifies the watchers of what has changed, and
// logs it.
func (b *bundle) look() {
	b.read()
	defer b.report()
	if !b.judge() {
		return // the owner of the source reports it
	}
	served := ""
	if b.made.item != nil {
		served = b.made.item.Version
	}
	if served != b.served {
		b.served = served
		b.notify()
	}
	b.renewRevoked()
}

// read takes the files that have changed. One that cannot be read leaves what it held before.
func (b *bundle) read() {
	contents, faults := make(map[string]content), []string(nil)
	changed := false
	for _, path := range b.spec.Files {
		last := b.contents[path] // read by this goroutine alone
		c, err := last.reread(path)
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", path, err))
		}
		changed = changed || !bytes.Equal(c.text, last.text)
		contents[path] = c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.contents, b.faults = contents, faults
	if changed {
		b.reads++
	}
}

// reread returns what the file holds now, or c after an error.
func (c content) reread(path string) (content, error) {
	text, err := safefile.Read(path, pki.MaxCRLBytes)
	if err != nil || bytes.Equal(text, c.text) {
		return c, err
	}
	lists, issuers, err := pki.ParseCRLs(text)
	if err != nil {
		return c, err
	}
	return content{text, lists, issuers}, nil
}

// Faults returns what is wrong with the files as they are now.
func (b Bundle) Faults() (faults []string) {
	for _, path := range b.Files {
		if _, err := (content{}).reread(path); err != nil {
			faults = append(faults, text.Clean(fmt.Sprintf("%s: %v", path, err)))
		}
	}
	return faults
}

// contentsNow returns what files and feeds hold. The caller holds b.mu.
func (b *bundle) contentsNow() []content {
	var all []content
	for _, path := range b.spec.Files {
		all = append(all, b.contents[path])
	}
	for _, last := range b.replies {
		all = append(all, last.content)
	}
	return all
}

// dress returns the bundle with the lists of its CAs, as it was last judged.
func (b *bundle) dress() (*secret.Item, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made.item == nil {
		return nil, secret.NotReady(b.spec.Name, b.failure(b.now()))
	}
	return b.made.item, nil
}

// judge makes what is served, if what it is made of has changed. Only the Set's goroutine
// calls it; it holds no lock while it verifies, and what was made before is served meanwhile.
// It is false if the source has no such trust bundle.
func (b *bundle) judge() bool {
	item, err := b.source.Peek(secret.Caller{}, b.spec.Name)
	if err != nil || item.Kind != secret.TrustBundle {
		return false
	}
	m := made{from: item, at: b.now()}
	for _, name := range b.spec.Chains {
		chain, _ := b.source.Peek(secret.Caller{}, name) // without one there is nothing to learn from it
		m.chains = append(m.chains, chain)
	}
	b.mu.Lock()
	m.reads = b.reads
	contents := b.contentsNow()
	b.mu.Unlock()
	if b.made.fits(m) {
		return true
	}
	roots, err := pki.ParseCertificates(item.Roots)
	if err != nil {
		return true // unreachable: they were parsed before
	}
	b.verify(&m, roots, contents)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.made = m.lists(), m
	return true
}

// fits reports whether what was made is right for what now would be made of.
func (m made) fits(now made) bool {
	return m.from == now.from && m.reads == now.reads && !now.at.Before(m.at) &&
		(m.next.IsZero() || !now.at.After(m.next)) && slices.Equal(m.chains, now.chains)
}

// verify judges the lists.
func (b *bundle) verify(m *made, roots []*x509.Certificate, contents []content) {
	var lists []*x509.RevocationList
	var issuers []*x509.Certificate
	for _, c := range contents {
		lists, issuers = append(lists, c.lists...), append(issuers, c.issuers...)
	}
	for _, chain := range m.chains {
		issuers = append(issuers, above(chain)...)
	}
	b.signatures.begin()
	m.verdict = b.signatures.among(roots, issuers, m.at).judge(append(slices.Clone(b.held), lists...), b.spec.LeafOnly, m.at)
	m.refused = append(m.refused, b.signatures.setBack(m.newest, lists)...)
	if fault := b.signatures.fault(); fault != "" {
		m.refused = append(m.refused, fault)
	}
	m.item = b.itemOf(m.from, m.verdict)
	m.revoked = revokedOf(b.spec.Chains, m.chains, m.newest)
}

// above returns the certificates over the leaf.
func above(chain *secret.Item) []*x509.Certificate {
	if chain == nil {
		return nil
	}
	certs, err := pki.ParseCertificates(chain.Chain)
	if err != nil || len(certs) == 0 {
		return nil
	}
	return certs[1:]
}

// setBack names the CAs of which files and feeds have only an older list than the one held.
func (s *signatures) setBack(held []signed, lists []*x509.RevocationList) (faults []string) {
	for _, h := range held {
		var got *x509.RevocationList
		for _, list := range lists {
			if s.signed(list, h.ca) && (got == nil || pki.LaterCRL(list, got)) {
				got = list
			}
		}
		if got != nil && pki.LaterCRL(h.list, got) {
			faults = append(faults, fmt.Sprintf("the list of %s went back from number %v to %v; the later one is kept", nameOf(h.ca), h.list.Number, got.Number))
		}
	}
	return faults
}

// itemOf returns the item to serve; nil if a required list is missing.
func (b *bundle) itemOf(item *secret.Item, v verdict) *secret.Item {
	lists := v.lists()
	switch {
	case b.spec.Stale == Drop && len(v.without) > 0:
		return item
	case len(lists) == 0:
		return nil
	}
	dressed := *item
	dressed.CRLs, dressed.LeafCRLOnly = pki.EncodeCRLs(lists), b.spec.LeafOnly
	dressed.Version = version.Of(fmt.Appendf(nil, "%s %t %s", item.Version, b.spec.LeafOnly, dressed.CRLs))
	return &dressed
}

// failure returns why the newest lists were rejected; nil if they were taken. The caller holds b.mu.
func (b *bundle) failure(now time.Time) *secret.Failure {
	faults := slices.Clone(b.faults)
	for _, last := range b.replies {
		if last.fault != "" {
			faults = append(faults, last.fault)
		}
	}
	faults = append(faults, b.made.refused...)
	if len(faults) == 0 && b.made.item == nil && b.made.from != nil {
		faults = []string{"no revocation list: " + strings.Join(b.made.without, "; ")}
	}
	fault := text.Clean(strings.Join(faults, "; "))
	if fault != b.fault {
		b.fault, b.since = fault, now
	}
	if fault == "" {
		return nil
	}
	return &secret.Failure{Reason: reason, Text: fault, At: b.since}
}

// The reasons of events, and who sends them.
const (
	reason        = "crl"
	revokedReason = "revoked"
	publisher     = "revocation lists"
)
