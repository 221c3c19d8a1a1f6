package ra

import "slices"

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

// shareBehind takes the clusters that are left behind from the record, if that is known and another
// engine leads, and returns those to write into it.
func (a *authority) shareBehind(recorded []string, known bool) []string {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	if a.conf.Roots.Led && known {
		a.roots.behind = recorded
	}
	return a.roots.behind
}
