package status

import (
	"cmp"
	"slices"
)

// fault is something that needs an operator, with the part of the page that has more. Name is
// empty where the words suffice.
type fault struct {
	badge
	name, href string
}

// faults returns what is wrong, worst first, with at most [maxList] secrets, and how many more of
// these there are.
func (r Report) faults() (all []fault, more int) {
	all = r.problems()
	for n, p := range r.Providers {
		if state := badge(p.Mark()); state.Grade != good {
			all = append(all, fault{state, "Provider " + clean(p.Name), "#" + anchor("provider", n)})
		}
	}
	secrets := 0
	for _, w := range r.rows() {
		if w.badge.Grade == good {
			continue
		}
		if secrets++; secrets <= maxList {
			all = append(all, fault{badge{w.badge.Words + w.why(), w.badge.Grade}, clean(w.Name), r.href(w)})
		}
	}
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(rank[a.Grade], rank[b.Grade]) })
	return all, max(0, secrets-maxList)
}

// problems writes what is wrong now, before everything that is well.
func (m *markup) problems(r Report) {
	m.section("problems", "Problems", func() {
		all, more := r.faults()
		if len(all) == 0 {
			m.put("<p>None.</p>\n")
			return
		}
		m.put("<ul class=\"rows\">")
		for _, f := range all {
			if f.name == "" {
				m.put("\n<li><a href=\"%v\" class=\"mark %v\">%v</a></li>", f.href, f.Grade, f.Words)
			} else {
				m.put("\n<li><a href=\"%v\">%v</a> <span class=\"mark %v\">%v</span></li>", f.href, f.name, f.Grade, f.Words)
			}
		}
		if more > 0 {
			m.put("\n<li><a href=\"#secrets\">%v more secrets</a></li>", more)
		}
		m.put("\n</ul>\n")
		for _, e := range alike(r.Errors, true) {
			m.error(e)
		}
	})
}

// sameError is an error of one or more secrets or providers.
type sameError struct {
	Error     // of the newest; Count is of all
	more  int // how many others have it
}

// alike returns the errors that last, or those that are over, in their order: one for all that read the
// same, as hundreds of secrets fail together.
func alike(errors []Error, now bool) (all []sameError) {
	type content struct{ reason, text, does, do string }
	places := map[content]int{}
	for _, e := range errors {
		if e.Now != now {
			continue
		}
		key := content{e.Reason, e.Text, e.Does, e.Do}
		if i, seen := places[key]; seen {
			all[i].Count += e.Count
			all[i].more++
			continue
		}
		places[key] = len(all)
		all = append(all, sameError{Error: e})
	}
	return all
}
