package rootphase

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/peers"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// version is the one that this program writes.
	version = 1
	// maxRecord bounds a stored record, in bytes.
	maxRecord = 2 << 20
)

// record is what outlives a restart, and what several share.
type record struct {
	Version int          `json:"version"`
	Latest  time.Time    `json:"latest,omitzero"`
	Roots   []rootRecord `json:"roots"`
}

type rootRecord struct {
	PEM       string    `json:"pem"`
	Announced time.Time `json:"announced"`
	After     time.Time `json:"after,omitzero"`
	Written   time.Time `json:"written,omitzero"`
	Trusted   time.Time `json:"trusted,omitzero"`
	Unplanned bool      `json:"unplanned,omitzero"`
	Withdrawn time.Time `json:"withdrawn,omitzero"`
	Ends      time.Time `json:"ends,omitzero"`
	// Reported says that one who is led has it of a reply: whoever leads has yet to take it.
	Reported bool `json:"reported,omitzero"`

	print string // of its certificate
}

// Record returns what outlives a restart, as JSON. Equal states give equal bytes, and a
// certificate that ends soon after another changes nothing.
func (m *Machine) Record() []byte {
	out := record{Version: version, Latest: m.latest.kept, Roots: []rootRecord{}}
	for _, cert := range m.Bundle().Certificates() {
		out.Roots = append(out.Roots, m.roots[pki.Fingerprint(cert)].record())
	}
	return out.text()
}

func (r *root) record() rootRecord {
	return rootRecord{
		PEM: string(pki.NewBundle(r.cert).PEM()), Announced: r.announced, After: r.after.kept, Written: r.written,
		Trusted: r.trusted, Unplanned: r.unplanned, Withdrawn: r.withdrawn, Ends: r.ends.kept,
	}
}

func (in record) text() []byte {
	text, err := json.Marshal(in)
	if err != nil {
		panic(err) // times beyond year 9999, which no certificate has
	}
	return text
}

// parse reads a record and its roots, by fingerprint. The error does not quote it; it wraps
// [peers.ErrNewer] for a record that another program knows how to read.
func parse(text []byte) (in record, roots map[string]*root, err error) {
	if err := peers.CheckVersion(text, version); err != nil {
		return in, nil, err
	}
	if len(text) > maxRecord {
		return in, nil, fmt.Errorf("the record has %d bytes, %d are allowed", len(text), maxRecord)
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return in, nil, errors.New("the record is malformed")
	}
	if in.Version != version || len(in.Roots) > maxRoots {
		return in, nil, fmt.Errorf("the record is of version %d with %d roots; use version %d and %d roots at most", in.Version, len(in.Roots), version, maxRoots)
	}
	roots = map[string]*root{}
	for i, r := range in.Roots {
		bundle, err := pki.ParseBundle([]byte(r.PEM))
		if err != nil {
			return in, nil, fmt.Errorf("a root of the record: %w", err)
		}
		for _, cert := range bundle.Certificates() {
			in.Roots[i].print = pki.Fingerprint(cert)
			roots[in.Roots[i].print] = &root{
				cert: cert, announced: r.Announced, after: endOf(r.After), written: r.Written,
				trusted: r.Trusted, unplanned: r.Unplanned, withdrawn: r.Withdrawn, ends: endOf(r.Ends), replied: r.Reported,
			}
		}
	}
	return in, roots, nil
}

// Restore returns a Machine in the recorded state. The error does not quote the record.
func Restore(conf Config, text []byte, now time.Time) (*Machine, error) {
	in, roots, err := parse(text)
	if err != nil {
		return nil, err
	}
	m := New(conf)
	if conf.Led {
		m.follow(in, roots, now)
		return m, nil
	}
	for print, r := range roots {
		if !r.replied {
			m.roots[print] = r
		}
	}
	m.raise(in, roots, now)
	return m, nil
}

// Sync merges the common record, which may be empty, and returns the new one. A follower takes the
// phases and adds what it gave out; the leader takes the latter. The leader replaces an unusable
// record, and Sync returns an error, too; a record of a newer version is returned as it is.
func (m *Machine) Sync(text []byte, now time.Time) ([]byte, error) {
	var in record
	var roots map[string]*root
	var err error
	if len(text) > 0 {
		in, roots, err = parse(text)
	}
	switch {
	case err != nil && (m.conf.Led || errors.Is(err, peers.ErrNewer)):
		return text, err
	case !m.conf.Led:
		m.raise(in, roots, now)
		return m.Record(), err
	}
	m.follow(in, roots, now)
	return m.report(in, text, now), nil
}

// raise takes over what those who are led have added.
func (m *Machine) raise(in record, roots map[string]*root, now time.Time) {
	m.latest.raise(in.Latest)
	for print, given := range roots {
		if m.roots[print] == nil && (given.replied || given.ends.kept.After(now)) {
			m.reported(given, now)
		}
	}
	for print, given := range roots {
		if r := m.roots[print]; r != nil {
			r.raise(given)
		}
	}
	m.Step(now)
}

// reported takes a root that another has told, or has signed below while we forgot it. The authority
// may have told us that it is over.
func (m *Machine) reported(given *root, now time.Time) {
	if m.add(pki.NewBundle(given.cert), true, now) != nil {
		return // one more than there may be
	}
	if r := m.roots[pki.Fingerprint(given.cert)]; r != nil && m.told != nil && !m.told.Contains(r.cert) && given.ends.kept.After(now) {
		r.withdrawn = now
	}
}

// follow takes over the phases. A root that the record has no more is withdrawn, and goes once
// nothing below it lives that was given out here. A record without roots changes nothing: somebody
// deleted it, and whoever leads will write it again.
func (m *Machine) follow(in record, roots map[string]*root, now time.Time) {
	defer m.latest.raise(in.Latest) // a root that is new here was announced before
	if !slices.ContainsFunc(in.Roots, func(r rootRecord) bool { return !r.Reported }) {
		return
	}
	m.led = true
	for print, given := range roots {
		if !given.replied {
			m.take(print, given)
		}
	}
	for print, r := range m.roots {
		if given := roots[print]; given == nil || given.replied {
			r.leave(now)
		}
	}
	m.Step(now)
}

// take takes a root as the record has it.
func (m *Machine) take(print string, given *root) {
	r := m.roots[print]
	if r == nil {
		r = &root{cert: given.cert, after: m.latest}
		m.roots[print] = r
	}
	r.recorded, r.announced, r.written, r.withdrawn = true, given.announced, given.written, given.withdrawn
	if r.trusted.IsZero() || r.ends.at.IsZero() { // what was given out below it is out
		r.trusted = given.trusted
	}
	r.raise(given)
}

// leave is for a root that the record does not have, or no more.
func (r *root) leave(now time.Time) {
	if r.recorded && r.withdrawn.IsZero() {
		r.withdrawn = now
	}
	if r.recorded = false; r.ends.at.IsZero() {
		r.trusted = time.Time{}
	}
}

// raise takes over what others gave out.
func (r *root) raise(given *root) {
	r.after.raise(given.after.kept)
	r.ends.raise(given.ends.kept)
	r.unplanned = r.unplanned || given.unplanned
}

// report returns the record with what is known here alone; the same text, if nothing is.
func (m *Machine) report(in record, text []byte, now time.Time) []byte {
	changed := later(&in.Latest, m.latest)
	has := map[string]bool{}
	for i := range in.Roots {
		line := &in.Roots[i]
		has[line.print] = true
		if r := m.roots[line.print]; r != nil {
			changed = line.add(r) || changed
		}
	}
	for _, cert := range m.Bundle().Certificates() {
		print := pki.Fingerprint(cert)
		if r := m.roots[print]; r.worthReporting(now) && !has[print] && len(in.Roots) < maxRoots {
			line := r.record()
			line.Reported, changed = true, true
			in.Roots = append(in.Roots, line)
		}
	}
	if !changed {
		return text
	}
	in.Version = version
	return in.text()
}

// worthReporting reports whether whoever leads has to know a root: a reply brought it, or there are
// certificates below it.
func (r *root) worthReporting(now time.Time) bool {
	return r.replied && r.withdrawn.IsZero() || r.ends.kept.After(now)
}

// add adds to a line what was given out.
func (line *rootRecord) add(r *root) (changed bool) {
	changed = later(&line.Ends, r.ends)
	if line.Trusted.IsZero() {
		changed = later(&line.After, r.after) || changed
	}
	if r.unplanned && !line.Unplanned {
		line.Unplanned, changed = true, true
	}
	return changed
}

func later(recorded *time.Time, e end) (changed bool) {
	if changed = e.kept.After(*recorded); changed {
		*recorded = e.kept
	}
	return changed
}
