package ra

import (
	"maps"
	"slices"
	"time"
)

// SetBehind records whether a cluster is left behind: no new root of the authority waits for it, as it
// could not be reached for too long, so its pods may lack roots. The record has it, so that each engine
// with the same Store learns it.
func (e *Engine) SetBehind(authority, cluster string, behind bool) {
	a := e.authorities[authority]
	if a == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(a.roots.behind, cluster) == behind {
		return
	}
	// A new slice: Behind hands out the old one.
	next := slices.DeleteFunc(slices.Clone(a.roots.behind), func(id string) bool { return id == cluster })
	if behind {
		next = append(next, cluster)
		slices.Sort(next)
	}
	a.roots.behind = next
	a.record.change()
}

// Behind returns the clusters that are left behind, sorted. Callers of these have to wait until the
// cluster has the roots. The result must not be changed.
func (e *Engine) Behind(authority string) []string {
	a := e.authorities[authority]
	if a == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return a.roots.behind
}

// SetLacking records since when places lack roots of the authority; the names of the places are the
// caller's. The next engine with the same Store learns it from the record, so that a place does not get
// its time anew with each leader. It does nothing before the record is read.
func (e *Engine) SetLacking(authority string, since map[string]time.Time) {
	a := e.authorities[authority]
	if a == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.roots.phases == nil || maps.EqualFunc(a.roots.lacking, since, time.Time.Equal) {
		return
	}
	a.roots.lacking = maps.Clone(since)
	a.record.change()
}

// Lacking returns what [Engine.SetLacking] recorded last, also in a former engine with the same Store.
// It must not be changed.
func (e *Engine) Lacking(authority string) map[string]time.Time {
	a := e.authorities[authority]
	if a == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return a.roots.lacking
}

// shareBehind takes the clusters that are left behind from the record, if that is known and another
// engine leads, and returns those to write into it, with since when places lack roots.
func (a *authority) shareBehind(recorded []string, known bool) (behind []string, lacking map[string]time.Time) {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	if a.conf.Roots.Led && known {
		a.roots.behind = recorded
	}
	return a.roots.behind, a.roots.lacking
}
