package rootphase

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxRecord bounds a stored record, in bytes.
const maxRecord = 2 << 20

// coarse is what recorded ends are rounded up to, so that not each certificate changes the
// record.
const coarse = 5 * time.Minute

// record is what outlives a restart.
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
}

// Record returns what outlives a restart, as JSON. Equal states give equal bytes, and a
// certificate that ends within the same five minutes as another changes nothing.
func (m *Machine) Record() []byte {
	out := record{Version: 1, Latest: roundUp(m.latest), Roots: []rootRecord{}}
	for _, cert := range m.Bundle().Certificates() {
		r := m.roots[pki.Fingerprint(cert)]
		out.Roots = append(out.Roots, rootRecord{
			PEM: string(pki.NewBundle(cert).PEM()), Announced: r.announced, After: r.after, Written: r.written,
			Trusted: r.trusted, Unplanned: r.unplanned, Withdrawn: r.withdrawn, Ends: roundUp(r.ends),
		})
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // times beyond year 9999, which no certificate has
	}
	return text
}

func roundUp(t time.Time) time.Time {
	if down := t.Truncate(coarse); down.Before(t) {
		return down.Add(coarse)
	}
	return t
}

// Restore returns a Machine in the recorded state. The error does not quote the record.
func Restore(conf Config, text []byte, now time.Time) (*Machine, error) {
	if len(text) > maxRecord {
		return nil, fmt.Errorf("the record has %d bytes, %d are allowed", len(text), maxRecord)
	}
	var in record
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, errors.New("the record is malformed")
	}
	if in.Version != 1 || len(in.Roots) > maxRoots {
		return nil, fmt.Errorf("the record is of version %d with %d roots; use version 1 and %d roots at most", in.Version, len(in.Roots), maxRoots)
	}
	m := New(conf)
	m.latest = in.Latest
	for _, r := range in.Roots {
		bundle, err := pki.ParseBundle([]byte(r.PEM))
		if err != nil {
			return nil, fmt.Errorf("a root of the record: %w", err)
		}
		for _, cert := range bundle.Certificates() {
			m.roots[pki.Fingerprint(cert)] = &root{
				cert: cert, announced: r.Announced, after: r.After, written: r.Written,
				trusted: r.Trusted, unplanned: r.Unplanned, withdrawn: r.Withdrawn, ends: r.Ends,
			}
		}
	}
	m.Step(now)
	return m, nil
}
