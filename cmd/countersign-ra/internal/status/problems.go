package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
)

const good, fair, bad = daemon.Good, daemon.Fair, daemon.Bad

type (
	mark    = daemon.Mark
	problem = daemon.Problem
)

// Problems returns the current problems, worst first.
func (r Report) Problems() []problem {
	return daemon.WorstFirst(slices.Concat(r.atStart(), r.ofNeeds(), r.Process.Problems(), r.Istio.problems(), r.ofShares(), r.ofRules(), ofAuthorities(r.Authorities), daemon.OfProviders(r.Providers), r.ofClusters()))
}

func (r Report) atStart() []problem {
	if r.NotReady == "" {
		return nil
	}
	return []problem{{Grade: bad, What: "Nothing is signed by this replica", Detail: r.NotReady, Do: "Mend what is named here. If it is a cluster, check its API server, and the permissions of this service's account there."}}
}

func (r Report) ofRules() []problem {
	if r.Unable == "" {
		return nil
	}
	return []problem{{Grade: bad, What: "Rules cannot be served by their authorities", Detail: r.Unable, Do: "Their requests are left pending. Name another authority in these rules, and send SIGHUP."}}
}

func ofAuthorities(authorities []Authority) (all []problem) {
	for _, a := range authorities {
		for _, s := range a.Stopped {
			what := fmt.Sprintf("Rule %s is stopped at %s", s.Rule, a.Name)
			if s.UpTo != "" {
				what += " for lifetimes up to " + s.UpTo
			}
			all = append(all, problem{Grade: bad, What: what, Detail: s.Error, At: s.Since, Do: "Certificates of this authority cannot be given out, so one request at a time tries again. Change the CA's or the rule's settings."})
		}
		if a.Record != "" {
			all = append(all, problem{Grade: fair, What: "The record of the roots of " + a.Name + " cannot be used", Detail: a.Record, Do: "The leader replaces a damaged record. One of a newer version stays: finish the upgrade or, after a rollback, delete the key of the authority in the ConfigMap."})
		}
		switch {
		case a.Held != "":
			all = append(all, problem{Grade: bad, What: "Certificates of " + a.Name + " are held back", Detail: a.Held, Do: "Its root is new, and not everywhere yet. " + resumes(a) + " Rotate a CA by publishing its new root first."})
		case a.HeldSeconds > 0:
			all = append(all, problem{Grade: fair, What: "Authority " + a.Name + " is not asked at present", Do: "It is unavailable or rate-limited us. " + resumes(a) + " See its provider's last log lines."})
		}
		for _, root := range a.Roots {
			if root.Phase == "announced" {
				all = append(all, problem{Grade: fair, What: "A new root of " + a.Name + " is not published everywhere", Detail: root.Fingerprint, At: root.Since, Do: "Do not let the CA sign below it yet. See the trust bundles of each cluster; one that is away delays it."})
			}
		}
	}
	return all
}

func resumes(a Authority) string {
	return fmt.Sprintf("It is asked again in %s.", time.Duration(a.HeldSeconds*float64(time.Second)).Round(time.Second))
}

func (r Report) ofClusters() (all []problem) {
	for _, k := range r.Clusters {
		if len(k.Refused) > 0 {
			all = append(all, problem{
				Grade: fair, What: "Duplicate cluster ID " + k.ID, Detail: strings.Join(k.Refused, ", "),
				Do: "The first kubeconfig with this ID stays in use. Remove the others, or give each an ID of its own.",
			})
		}
		switch {
		case k.Fault != "" || k.State == fleet.Failed || k.State == fleet.Away:
			all = append(all, problem{Grade: bad, What: "Cluster " + k.ID + " is " + string(k.State), Detail: k.Fault, At: k.Away, Do: "Its requests are left pending. Check its API server, its kubeconfig, and the permissions of this service's account there."})
		case k.NotReady != "":
			all = append(all, problem{Grade: fair, What: "Cluster " + k.ID + " is not served yet", Detail: k.NotReady, Do: "Its requests are left pending. If this lasts, check the permissions of this service's account there."})
		}
		for _, why := range k.Dangerous {
			all = append(all, problem{Grade: bad, What: "An authority is not asked, as " + k.ID + " trusts it with its API", Detail: why, Do: "Requests for it are left pending. Use an authority that no API server trusts as a client CA."})
		}
		if len(k.Left) > 0 && (k.Mesh == nil || k.Mesh.Roots == nil || !k.Mesh.Roots.Away) {
			all = append(all, problem{
				Grade: bad, What: "No new root waits for cluster " + k.ID + " any more", Detail: strings.Join(k.Left, ", "),
				Do: "It has lacked roots for an hour, so its pods may refuse peers. See its trust bundles and ConfigMaps: its API server is too slow, or another program owns them.",
			})
		}
		all = append(all, k.ofBundles()...)
		all = append(all, k.ofShut()...)
		all = append(all, k.Mesh.problems(k.ID)...)
		if p := k.Protection; p != nil && p.State == guard.Unprotected {
			all = append(all, problem{
				Grade: bad, What: "Every user who may create PodCertificateRequests in " + k.ID + " can have any pod's certificate", Detail: p.Why,
				Do: "Apply the ValidatingAdmissionPolicy of deploy/kustomize/ra there.",
			})
		}
	}
	return all
}

func (k Cluster) ofBundles() (all []problem) {
	for _, b := range k.Bundles {
		do := "Pods there miss new roots until it is written."
		switch {
		case b.Error == "":
			continue
		case b.TrustDomain == "*":
			do = "Pods there trust a trust domain that is no longer federated. Grant the component deploy/kustomize/ra/federation, or delete the object."
		case b.TrustDomain != "":
			do = "Pods there have the last verified roots of " + b.TrustDomain + ". Check its bundle endpoint, the way there, and the component deploy/kustomize/ra/federation."
		}
		all = append(all, problem{Grade: fair, What: fmt.Sprintf("Trust bundle %s in %s is out of date", b.Object, k.ID), Detail: b.Error, Do: do})
	}
	return all
}

// Summary describes the service in one sentence.
func (r Report) Summary() mark {
	does := "Waiting: " + r.Leader.Holder + " leads."
	if r.Leader.Leading {
		does = "Signing."
	}
	switch problems := r.Problems(); {
	case r.NotReady != "":
		return mark{Words: "Not ready: " + r.NotReady + ".", Grade: bad}
	case len(problems) > 0:
		return mark{Words: fmt.Sprintf("%s Problems: %d.", does, len(problems)), Grade: problems[0].Grade}
	}
	return mark{Words: does + " No problems.", Grade: good}
}
