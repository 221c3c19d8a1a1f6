package top

import (
	"fmt"
	"slices"
	"time"
)

// maxEvents is how many are kept; the newest are.
const maxEvents = 200

// event is a change between two looks.
type event struct {
	at   time.Time
	from string // the address
	text string
	well bool
}

// changes returns what has happened to an agent between two looks.
func changes(old, now report) (all []event) {
	say := func(well bool, format string, args ...any) {
		all = append(all, event{well: well, text: fmt.Sprintf(format, args...)})
	}
	for _, s := range now.Secrets {
		i := slices.IndexFunc(old.Secrets, func(o secret) bool { return o.Name == s.Name })
		if i < 0 {
			say(true, "secret %s is new", s.Name)
			continue
		}
		was := old.Secrets[i]
		if s.Rotations > was.Rotations || s.Item.Serial != was.Item.Serial {
			say(true, "secret %s rotated, serial %s, root %s", s.Name, dash(s.Item.Serial), dash(short(s.Item.Root)))
		}
		before, _ := was.state()
		if after, well := s.state(); after != before && after != "held, renewing" && (before != "held, renewing" || !well) {
			say(well, "secret %s: %s, was %s", s.Name, after, before)
		}
		rootChanges(s.Name, was.Roots, s.Roots, say)
	}
	for _, p := range now.Providers {
		if i := slices.IndexFunc(old.Providers, func(o provider) bool { return o.Name == p.Name }); i >= 0 && old.Providers[i].State != p.State {
			say(p.State == "ready", "provider %s: %s, was %s", p.Name, p.State, old.Providers[i].State)
		}
	}
	tokenChanges("JWT-SVIDs", old.JWTSVIDs, now.JWTSVIDs, say)
	tokenChanges("WIT-SVIDs", old.WITSVIDs, now.WITSVIDs, say)
	for _, e := range now.Errors {
		if !slices.ContainsFunc(old.Errors, func(o fault) bool { return o.Where == e.Where && o.Text == e.Text && !e.At.After(o.At) }) {
			say(false, "%s: %s: %s", e.Where, e.Reason, e.Text)
		}
	}
	return all
}

// tokenChanges reports new keys, and failures.
func tokenChanges(kind string, old, now *tokens, say func(well bool, format string, args ...any)) {
	if old == nil || now == nil {
		return
	}
	if now.State != old.State {
		say(now.well(), "%s: %s, was %s", kind, now.State, old.State)
	}
	if !slices.Equal(old.Keys, now.Keys) {
		say(len(now.Keys) > 0, "%s: %d keys, were %d", kind, len(now.Keys), len(old.Keys))
	}
	if now.Failure.At.After(old.Failure.At) {
		say(false, "%s: %s: %s", kind, now.Failure.Reason, now.Failure.Text)
	}
}

// rootChanges reports a rotation of roots.
func rootChanges(bundle string, old, now []root, say func(well bool, format string, args ...any)) {
	has := func(all []root, r root) int {
		return slices.IndexFunc(all, func(o root) bool { return o.Fingerprint == r.Fingerprint })
	}
	for _, r := range now {
		switch i := has(old, r); {
		case i < 0:
			say(true, "%s: root %s was added, %s", bundle, short(r.Fingerprint), r.Subject)
		case old[i].KeptUntil.IsZero() && !r.KeptUntil.IsZero():
			say(true, "%s: root %s was dropped by its CA, and is kept for a while", bundle, short(r.Fingerprint))
		}
	}
	for _, r := range old {
		if has(now, r) < 0 {
			say(true, "%s: root %s was removed, %s", bundle, short(r.Fingerprint), r.Subject)
		}
	}
}

// short is the beginning of a fingerprint.
func short(s string) string { return s[:min(12, len(s))] }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
