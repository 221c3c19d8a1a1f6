package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/fleet"
	"github.com/countersign-dev/countersign/control-plane/kubernetes/secrets"
	"github.com/countersign-dev/countersign/sdk/discovery/folder"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Grades of what is shown.
const (
	good = "good"
	fair = "fair" // what is served is served on
	bad  = "bad"
)

// trouble is something that an operator should look at: what it is, what was said, and
// what to do.
type trouble struct {
	Grade, What, Said, Do string
	At                    time.Time // zero where that is not known
}

// Troubles are all that are present, the worst first.
func (r report) Troubles() []trouble {
	all := slices.Concat(r.atStart(), r.ofSecrets(), r.ofProviders(), r.ofClusters(), r.ofWatched(), r.ofTrust(), r.ofFolder(), r.ofStreams())
	slices.SortStableFunc(all, func(a, b trouble) int { return cmp.Compare(a.Grade, b.Grade) }) // bad is before fair
	return all
}

func (r report) atStart() []trouble {
	if r.Server.NotReady == "" || r.Server.Draining {
		return nil
	}
	return []trouble{{
		Grade: bad, What: "Nobody is answered", Said: r.Server.NotReady,
		Do: "Mend what is missing. A remote cluster is waited for no longer than times.sync.",
	}}
}

func (r report) ofSecrets() (all []trouble) {
	for _, s := range r.Secrets {
		of := trouble{Grade: fair, Do: "What is held is served to its end. Check that the authority is up and reached, and the provider's last lines in the log."}
		if s.Failure != nil {
			of.Said, of.At = s.Failure.Reason+": "+s.Failure.Text, s.Failure.At
		}
		switch {
		case !s.ExpiredSince.IsZero():
			of.Grade, of.What, of.Do = bad, s.Name+" has expired", "Clients refuse it. Check that the authority is up and reached, and the provider's last lines in the log."
		case !s.Held:
			of.Grade, of.What, of.Do = bad, s.Name+" is not held", "Check the file, or that the authority is up and reached, and the provider's last lines in the log."
		case s.Failure != nil:
			of.What = s.Name + " cannot be had anew"
		default:
			continue
		}
		all = append(all, of)
	}
	return all
}

func (r report) ofProviders() (all []trouble) {
	for _, p := range r.Providers {
		if grade := p.Mark().Grade; grade != good {
			all = append(all, trouble{
				Grade: grade, What: "The provider " + p.Name + " is in the state " + p.State, Said: p.LastError, At: p.Since,
				Do: "Its last lines are in the log. It is started again by itself, with growing pauses.",
			})
		}
	}
	return all
}

func (r report) ofClusters() (all []trouble) {
	for _, c := range r.Clusters {
		if len(c.Refused) > 0 {
			all = append(all, trouble{
				Grade: fair, What: "The id of the cluster " + c.ID + " is claimed again", Said: strings.Join(c.Refused, ", "),
				Do: "Whoever had it first keeps it. Take the id out of the others, or give theirs another.",
			})
		}
		if c.State != fleet.Synced || c.Fault != "" {
			all = append(all, ofCluster(c))
		}
	}
	return all
}

func ofCluster(c fleet.Status) trouble {
	t := trouble{Grade: bad, What: "The cluster " + c.ID + " is not followed", Said: c.Fault, Do: "Nothing is served of it."}
	if c.State == fleet.Connecting && c.Fault == "" {
		t.What = "The cluster " + c.ID + " is not synced yet"
	}
	if c.Serving {
		t.Grade, t.Do = fair, "What was held of it is served on."
	}
	t.Do += " Check its API server, and what our account may there."
	if c.Source != "" {
		t.Do += " Its kubeconfig is in the " + c.Source + "; a change is noticed."
	}
	return t
}

// ofWatched leaves the names to their table.
func (r report) ofWatched() (all []trouble) {
	if r.Watched == nil {
		return nil
	}
	sums := map[secrets.State]int{}
	for _, c := range r.Watched.Counts {
		for _, state := range secrets.States {
			sums[state] += *c.of(state)
		}
	}
	for _, of := range []struct {
		state           secrets.State
		grade, what, do string
	}{
		{secrets.Broken, bad, "are malformed", "The last good version is served to those who watch them, and nothing where there was none."},
		{secrets.Expired, bad, "have expired", "They are served all the same, and clients refuse them."},
		{secrets.Ending, fair, "end soon", "Whoever renews them should have done so."},
	} {
		if n := sums[of.state]; n > 0 {
			all = append(all, trouble{
				Grade: of.grade, What: fmt.Sprintf("Watched secrets of Kubernetes %s: %d", of.what, n),
				Do: of.do + " They are named under \"Kubernetes secrets\", and are to be replaced in their cluster; a change is noticed.",
			})
		}
	}
	return all
}

func (r report) ofTrust() (all []trouble) {
	for _, d := range r.TrustDomains {
		switch {
		case d.Roots == 0:
			all = append(all, trouble{Grade: bad, What: "Nobody of " + d.Name + " is known", Said: d.Problem, Do: "It has no roots. Mend where they come from: " + d.From + "."})
		case d.Problem != "":
			all = append(all, trouble{
				Grade: fair, What: "The roots of " + d.Name + " cannot be had anew", Said: d.Problem,
				Do: "Those that were had before are kept. Mend where they come from: " + d.From + ".",
			})
		}
	}
	return all
}

func (r report) ofFolder() (all []trouble) {
	if r.Folder == nil {
		return nil
	}
	if r.Folder.Fault != "" {
		all = append(all, trouble{Grade: bad, What: "The folder " + r.Folder.Path + " cannot be read", Said: r.Folder.Fault, Do: "What it held is served on. Check that it is there, and its rights."})
	}
	for _, f := range r.Folder.Files {
		switch f.State {
		case folder.Kept:
			all = append(all, trouble{Grade: fair, What: "The file " + f.Name + " is bad", Said: f.Reason, Do: "What it held when it was good is served. Mend it; a change is noticed."})
		case folder.Refused:
			all = append(all, trouble{Grade: bad, What: "The file " + f.Name + " is bad", Said: f.Reason, Do: "Nothing of it is served. Mend it; a change is noticed."})
		}
	}
	return all
}

// ofStreams has those once that refuse the same for the same reason.
func (r report) ofStreams() []trouble {
	type refused struct{ typ, reason string }
	counts, last := map[refused]int{}, map[refused]time.Time{}
	for _, s := range r.Server.Streams {
		for _, t := range s.Types {
			if !t.Refusing() {
				continue
			}
			of := refused{short(t.Type), t.Refused.Reason}
			counts[of]++
			if t.Refused.At.After(last[of]) {
				last[of] = t.Refused.At
			}
		}
	}
	var all []trouble
	for of, n := range counts {
		all = append(all, trouble{
			Grade: fair, What: fmt.Sprintf("Clients refuse a %s: %d", of.typ, n), Said: of.reason, At: last[of],
			Do: "Each works with what it took before. Mend what is served; the next version is sent by itself. They are first among the streams; their own log says more.",
		})
	}
	slices.SortFunc(all, func(a, b trouble) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.What+a.Said, b.What+b.Said)) })
	return all
}

// mark is a state in words, and how grave it is.
type mark struct{ Words, Grade string }

// Summary is the whole in a sentence.
func (r report) Summary() mark {
	troubles := r.Troubles()
	switch {
	case r.Server.Draining:
		return mark{"Shutting down.", fair}
	case r.Server.NotReady != "":
		return mark{"Not ready: " + r.Server.NotReady + ".", bad}
	case len(troubles) == 0:
		return mark{"All is well.", good}
	}
	return mark{fmt.Sprintf("Streams are answered. To look at: %d.", len(troubles)), troubles[0].Grade}
}

// markOf is the state of a secret of the service's own.
func markOf(s secret.Status) mark {
	switch {
	case !s.ExpiredSince.IsZero():
		return mark{"expired", bad}
	case !s.Held:
		return mark{"not held", bad}
	case s.Failure != nil:
		return mark{"held; its renewal fails", fair}
	}
	return mark{"held", good}
}
