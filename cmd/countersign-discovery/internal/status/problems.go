package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/secrets"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const good, fair, bad = daemon.Good, daemon.Fair, daemon.Bad

type (
	mark    = daemon.Mark
	problem = daemon.Problem
)

const checkCA = "Check that the CA is up and reachable, and the provider's last log lines."

// Problems returns the current problems, worst first.
func (r Report) Problems() []problem {
	all := slices.Concat(r.atStart(), r.Process.Problems(), r.ofSecrets(), daemon.OfProviders(r.Providers), r.ofClusters(), r.ofWatched(), r.ofTrust(), r.ofFolder(), r.ofStreams())
	return daemon.WorstFirst(all)
}

func (r Report) atStart() []problem {
	if r.Server.NotReady == "" || r.Server.Draining {
		return nil
	}
	return []problem{{
		Grade: bad, What: "Requests are rejected", Detail: r.Server.NotReady,
		Do: "Fix the reason above. The service waits at most times.sync for a remote cluster.",
	}}
}

func (r Report) ofSecrets() (all []problem) {
	for _, s := range r.Secrets {
		of := problem{Grade: fair, Do: "It is used until it expires. " + checkCA}
		if f := cmp.Or(s.Failure, s.Pending); f != nil {
			of.Detail, of.At = f.Reason+": "+f.Text, f.At
		}
		switch {
		case !s.ExpiredSince.IsZero():
			of.Grade, of.What, of.Do = bad, s.Name+" has expired", "Clients reject it. "+checkCA
		case !s.Held:
			of.Grade, of.What, of.Do = bad, s.Name+" is not held", "If it comes from a file, check the file. Otherwise: "+checkCA
		case s.Failure != nil:
			of.What = s.Name + " cannot be renewed"
		default:
			continue
		}
		all = append(all, of)
	}
	return all
}

func (r Report) ofClusters() (all []problem) {
	for _, c := range r.Clusters {
		if len(c.Refused) > 0 {
			all = append(all, problem{
				Grade: fair, What: "Duplicate cluster ID " + c.ID, Detail: strings.Join(c.Refused, ", "),
				Do: "The first kubeconfig with this ID stays in use. Remove the others, or give each an ID of its own.",
			})
		}
		if c.State != fleet.Synced || c.Fault != "" {
			all = append(all, ofCluster(c))
		}
	}
	for _, n := range r.Unknown {
		all = append(all, problem{
			Grade: fair, What: n.Setting + " names an unknown cluster", Detail: n.ID,
			Do: "No kubeconfig has this cluster ID. Add it, or correct the setting and restart the service.",
		})
	}
	return all
}

func ofCluster(c fleet.Status) problem {
	t := problem{Grade: bad, What: "Cluster " + c.ID + " is not being watched", Detail: c.Fault, Do: "None of its secrets are served."}
	if c.State == fleet.Connecting && c.Fault == "" {
		t.What = "Cluster " + c.ID + " is not synced yet"
	}
	switch {
	case c.State == fleet.Away:
		t.What, t.At = "Cluster "+c.ID+" is away", c.Away
		t.Do = "New clients get no resource of it. Clients keep what they have; access.outage after the last answer, they stop getting new versions of their keys."
	case c.Serving:
		t.Grade, t.Do = fair, "Its last known secrets are served."
	}
	t.Do += " Check its API server, and the permissions of this service's account there."
	if c.Source != "" {
		t.Do += " Its kubeconfig comes from " + c.Source + "; changes are picked up."
	}
	return t
}

// ofWatched reports totals; a table has the names.
func (r Report) ofWatched() (all []problem) {
	if r.Watched == nil {
		return nil
	}
	sums := map[secrets.State]int{}
	for _, c := range r.Watched.Counts {
		for _, state := range secrets.States {
			sums[state] += *c.Of(state)
		}
	}
	for _, of := range []struct {
		state           secrets.State
		grade, what, do string
	}{
		{secrets.Broken, bad, "malformed", "Clients that watch them keep the last good version; others get nothing."},
		{secrets.Expired, bad, "expired", "They are still served, and clients reject them."},
		{secrets.Ending, fair, "expiring soon", "Their renewal is overdue."},
	} {
		if n := sums[of.state]; n > 0 {
			all = append(all, problem{
				Grade: of.grade, What: fmt.Sprintf("Watched Kubernetes secrets %s: %d", of.what, n),
				Do: of.do + " Replace those listed under \"Watched Kubernetes secrets\" in their cluster; changes are picked up.",
			})
		}
	}
	return all
}

func (r Report) ofTrust() (all []problem) {
	for _, d := range r.TrustDomains {
		switch {
		case d.Roots == 0:
			all = append(all, problem{Grade: bad, What: "No caller from " + d.Name + " can be authenticated", Detail: d.Problem, Do: "The trust domain has no roots. Fix their source: " + d.From + "."})
		case d.Problem != "":
			all = append(all, problem{
				Grade: fair, What: "The roots of " + d.Name + " cannot be refreshed", Detail: d.Problem,
				Do: "The previous roots stay in use. Fix their source: " + d.From + ".",
			})
		}
	}
	return all
}

func (r Report) ofFolder() (all []problem) {
	if r.Folder == nil {
		return nil
	}
	if r.Folder.Fault != "" {
		all = append(all, problem{Grade: bad, What: "Folder " + r.Folder.Path + " cannot be read", Detail: r.Folder.Fault, Do: "Its last known resources are served. Check that it exists, and its permissions."})
	}
	for _, f := range r.Folder.Files {
		switch f.State {
		case folder.Kept:
			all = append(all, problem{Grade: fair, What: "File " + f.Name + " is invalid", Detail: f.Reason, Do: "Its last valid version is served. Fix it; changes are picked up."})
		case folder.Refused:
			all = append(all, problem{Grade: bad, What: "File " + f.Name + " is invalid", Detail: f.Reason, Do: "Nothing in it is served. Fix it; changes are picked up."})
		}
	}
	return all
}

// ofStreams groups rejections by type and reason.
func (r Report) ofStreams() []problem {
	type refused struct{ typ, reason string }
	counts, last := map[refused]int{}, map[refused]time.Time{}
	for _, s := range r.Server.Streams {
		for _, t := range s.Types {
			if !t.Refusing() {
				continue
			}
			of := refused{short(t.Type), t.Refused.Text()}
			counts[of]++
			if t.Refused.At.After(last[of]) {
				last[of] = t.Refused.At
			}
		}
	}
	var all []problem
	for of, n := range counts {
		all = append(all, problem{
			Grade: fair, What: fmt.Sprintf("Clients rejecting a %s: %d", of.typ, n), Detail: of.reason, At: last[of],
			Do: "They keep using the last version they accepted. Fix the resource; the new version is pushed. Their streams are listed first; their own logs say more.",
		})
	}
	slices.SortFunc(all, func(a, b problem) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.What+a.Detail, b.What+b.Detail))
	})
	return all
}

// Summary describes the service in one sentence.
func (r Report) Summary() mark {
	problems := r.Problems()
	switch {
	case r.Server.Draining:
		return mark{Words: "Shutting down.", Grade: fair}
	case r.Server.NotReady != "":
		return mark{Words: "Not ready: " + r.Server.NotReady + ".", Grade: bad}
	case len(problems) == 0:
		return mark{Words: "No problems.", Grade: good}
	}
	return mark{Words: fmt.Sprintf("Serving. Problems: %d.", len(problems)), Grade: problems[0].Grade}
}

// markOf returns the state of one of the service's own secrets.
func markOf(s secret.Status) mark {
	switch {
	case !s.ExpiredSince.IsZero():
		return mark{Words: "expired", Grade: bad}
	case !s.Held:
		return mark{Words: "not held", Grade: bad}
	case s.Failure != nil:
		return mark{Words: "held; renewal is failing", Grade: fair}
	case s.Pending != nil:
		return mark{Words: "held; the CA has not decided on the renewal yet", Grade: fair}
	}
	return mark{Words: "held", Grade: good}
}
