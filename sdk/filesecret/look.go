package filesecret

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// minPause is the wait before invalid files are read again; it doubles up to maxPause.
// Events and polls trigger further reads.
const (
	minPause = 250 * time.Millisecond
	maxPause = 30 * time.Second
)

// run reads the files until ctx ends.
func (s *Source) run(ctx context.Context) {
	defer close(s.done)
	defer s.files.Close()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		retry.Reset(s.untilRetry())
		select {
		case <-ctx.Done():
			return
		case <-s.files.C:
			s.follow(everything) // the system's roots may now be in other files
		case <-s.poke:
			s.follow(func(e *entry) bool { return !e.seen })
		case <-retry.C:
			now := s.config.Now()
			s.look(s.all(), func(e *entry) bool { return !e.again.IsZero() && !now.Before(e.again) })
		}
	}
}

func (s *Source) untilRetry() time.Duration {
	wait := maxPause
	now := s.config.Now()
	for _, e := range s.all() {
		if !e.again.IsZero() {
			wait = min(wait, max(0, e.again.Sub(now)))
		}
	}
	return wait
}

func everything(*entry) bool { return true }

// all returns the entries, bundles first, as chains are checked against them.
func (s *Source) all() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]*entry, 0, len(s.entries))
	for _, e := range s.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(-cmp.Compare(a.spec.kind(), b.spec.kind()), strings.Compare(a.spec.Name, b.spec.Name))
	})
	return entries
}

// follow watches the files of all entries and then reads those of the wanted ones. An entry
// that comes meanwhile is left to its own poke: it must not be read before it is watched.
func (s *Source) follow(wanted func(*entry) bool) {
	s.files.Set(s.paths(s.all())...)
	s.followFolder()
	s.look(s.all(), wanted)
}

// paths returns the files of entries.
func (s *Source) paths(entries []*entry) []string {
	var paths []string
	if folder := s.config.CredentialFolder; folder != "" {
		paths = append(paths, folder+string(filepath.Separator)) // all files, future ones too
	}
	for _, e := range entries {
		if e.own || e.federated {
			continue
		}
		if e.spec.Roots == System {
			paths = append(paths, systemPaths(systemPlaces(s.config.SystemRoots))...)
		}
		paths = append(paths, e.spec.paths()...)
	}
	return paths
}

// paths returns the files that the spec names.
func (s Spec) paths() []string {
	switch s.Roots {
	case "":
		return []string{s.Chain, s.Key}
	case System:
		return nil
	}
	return []string{s.Roots}
}

// look reads the files of the wanted entries and serves what has changed.
func (s *Source) look(entries []*entry, wanted func(*entry) bool) {
	for _, e := range entries {
		if !wanted(e) || e.federated && e.dynamic {
			continue
		}
		e.seen = true
		item, skipped, err := s.readEntry(e)
		if e.federated && errors.Is(err, fs.ErrNotExist) {
			e.again, e.pause = time.Time{}, 0
			continue // removed since the folder was listed, which its event does again
		}
		if err != nil {
			s.disown(e)
			s.fail(e, err)
			continue
		}
		e.heldDomain = e.domain
		s.take(e, item, skipped)
	}
}

func (s *Source) readEntry(e *entry) (item *secret.Item, skipped []string, err error) {
	now := s.config.Now()
	read := e.read
	if e.spec.Roots == System {
		read = func(string) ([]byte, error) { return readSystem(systemPaths(systemPlaces(s.config.SystemRoots))) }
	}
	if e.spec.kind() == secret.TrustBundle {
		return readBundle(e.spec, read, now)
	}
	item, err = readPair(e.spec, read, now)
	return item, nil, err
}

// take serves the item if it has changed.
func (s *Source) take(e *entry, item *secret.Item, skipped []string) {
	e.again, e.pause = time.Time{}, 0
	if item.Kind == secret.KeyPair {
		item.RootFingerprint = s.leadsTo(item)
	}
	s.mu.Lock()
	was := e.held
	same := was != nil && was.Version == item.Version && bytes.Equal(was.Key, item.Key)
	changed := !same || e.forbidden
	e.failure, e.forbidden = nil, false
	var tell []func()
	if !same {
		e.held, e.expired = item, false
		e.count++
	}
	if changed {
		tell = e.watchers.All()
	}
	s.mu.Unlock()
	s.complain(e, skipped)
	if !same {
		s.report(e, item)
	}
	s.reportExpired(e)
	for _, notify := range tell {
		notify()
	}
}

// complain logs once which roots were skipped.
func (s *Source) complain(e *entry, skipped []string) {
	said := strings.Join(skipped, "\n")
	if said == e.said {
		return
	}
	e.said = said
	for i, reason := range skipped {
		if i == 10 {
			s.config.Log.Warn("more certificates omitted from the bundle", "secret", text.Clean(e.spec.Name), "count", len(skipped)-i)
			return
		}
		s.config.Log.Warn("certificate omitted from the bundle", "secret", text.Clean(e.spec.Name), "file", text.Clean(e.spec.Roots), "reason", text.Clean(reason))
	}
}

func (s *Source) report(e *entry, item *secret.Item) {
	log := s.config.Log.With("secret", text.Clean(e.spec.Name))
	if item.Kind == secret.TrustBundle {
		log.Info("serving roots from file", "file", text.Clean(e.spec.Roots), "roots", len(item.RootFingerprints))
		return
	}
	log.Info("serving certificate from files", "file", text.Clean(e.spec.Chain), "identity", text.Clean(item.Identity.String()),
		"serial", item.Serial, "fingerprint", item.Fingerprint, "not_after", item.NotAfter)
	s.config.Observe(secret.Event{Kind: secret.Rotated, Secret: e.label(), Authority: authority, NotAfter: item.NotAfter})
}

// fail keeps the held item, logs a new error once, reports each, and schedules the next read.
func (s *Source) fail(e *entry, err error) {
	e.pause = min(max(minPause, 2*e.pause), maxPause)
	now := s.config.Now()
	e.again = now.Add(e.pause)
	forbidden := errors.Is(err, errForbidden)
	fault := text.Clean(err.Error())
	s.mu.Lock()
	var tell []func()
	if forbidden != e.forbidden {
		e.forbidden, tell = forbidden, e.watchers.All()
	}
	failure := &secret.Failure{Reason: "files", Text: fault, At: now, NextTry: e.again}
	e.failure = failure
	held := e.held != nil
	s.mu.Unlock()
	if fault != e.said {
		e.said = fault
		s.config.Log.Warn("secret files are invalid", "secret", text.Clean(e.spec.Name), "error", fault, "keeps_the_one_before", held && !forbidden)
	}
	s.config.Observe(secret.Event{Kind: secret.Failed, Secret: e.label(), Authority: authority, Reason: failure.Reason, Failure: failure})
	s.reportExpired(e)
	for _, notify := range tell {
		notify()
	}
}

// reportExpired reports once that the held item has expired.
func (s *Source) reportExpired(e *entry) {
	if e.held == nil || e.expired || !e.held.Expired(s.config.Now()) {
		return
	}
	e.expired = true
	s.config.Log.Error("certificate from files expired and was not replaced", "secret", text.Clean(e.spec.Name), "not_after", e.held.NotAfter)
	s.config.Observe(secret.Event{Kind: secret.Expired, Secret: e.label(), Authority: authority, NotAfter: e.held.NotAfter})
}

// leadsTo returns the fingerprint of the root, among those served from files, that the
// item's chain leads to; empty if there is none.
func (s *Source) leadsTo(item *secret.Item) string {
	certs, err := pki.ParseCertificates(item.Chain)
	if err != nil {
		return "" // unreachable: it was parsed before
	}
	opts := x509.VerifyOptions{
		Intermediates: pki.NewBundle(certs[1:]...).Pool(), CurrentTime: s.config.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	for _, e := range s.all() {
		if e.spec.Roots == "" || e.spec.Roots == System || e.held == nil {
			continue
		}
		roots, err := pki.ParseCertificates(e.held.Roots)
		if err != nil {
			continue // unreachable: it was parsed before
		}
		opts.Roots = pki.NewBundle(roots...).Pool()
		if paths, err := certs[0].Verify(opts); err == nil {
			return pki.Fingerprint(paths[0][len(paths[0])-1])
		}
	}
	return ""
}
