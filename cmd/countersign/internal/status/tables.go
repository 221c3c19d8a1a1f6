package status

import (
	"fmt"

	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// maxRoots is how many roots of a bundle are shown.
const maxRoots = 100

// roots writes those of each bundle; of more than [maxCards] bundles, the first ones.
func (m *markup) roots(r Report) {
	m.section("roots", "Roots", func() {
		bundles := 0
		for n, s := range r.Secrets {
			if len(s.Roots) == 0 {
				continue
			}
			if bundles++; bundles <= maxCards {
				m.rootsOf(anchor("roots", n), s)
			}
		}
		if more := bundles - maxCards; more > 0 {
			m.put("<p>The details of %v more trust bundles have their roots.</p>\n", more)
		}
	})
}

func (m *markup) rootsOf(id string, s secret.Status) {
	name := clean(s.Name)
	m.table(id, "Roots of "+name, "Roots in "+name, []string{"Subject", "SHA-256", "From", "Valid until", "Kept"}, func() {
		for _, root := range s.Roots[:min(maxRoots, len(s.Roots))] {
			m.root(root)
		}
	})
}

func (m *markup) root(root secret.Root) {
	m.put("\n<tr><th scope=\"row\">%v</th><td><code title=\"%v\">%v</code></td><td>%v</td><td>",
		clean(root.Subject), clean(root.Fingerprint), short(root.Fingerprint), cleanAll(root.Authorities))
	m.moment(root.NotAfter)
	m.put("</td><td>")
	if root.KeptUntil.IsZero() {
		m.put("while its CA has it")
	} else {
		why := "dropped"
		if root.Restored {
			why = "from the last run"
		}
		m.put("<span class=\"mark fair\">%v</span> until ", why)
		m.moment(root.KeptUntil)
	}
	m.put("</td></tr>")
}

func (m *markup) streams(r Report) {
	m.section("streams", "Streams", func() {
		m.counts(r)
		if len(r.OpenStreams) == 0 {
			return
		}
		caption := "Open streams"
		if len(r.OpenStreams) < r.Streams {
			caption = fmt.Sprintf("Open streams, the newest %d of %d", len(r.OpenStreams), r.Streams)
		}
		m.table("open-streams", "Open streams", caption,
			[]string{"Caller", "Node", "Open since", "Last push", "Pushes", "Accepted", "Rejected"}, func() {
				for _, s := range r.OpenStreams {
					m.stream(s)
				}
			})
	})
}

func (m *markup) counts(r Report) {
	m.numbers([]number{
		{"Open", r.Streams}, {"Opened", r.Events.Opened}, {"Closed", r.Events.Closed}, {"Pushes", r.Events.Pushed},
		{"Accepted", r.Events.Acked}, {"Rejected by clients", r.Events.Nacked}, {"Names refused", r.Events.Refused},
	})
}

// number is a counter with its name.
type number struct {
	name  string
	value int
}

func (m *markup) numbers(all []number) {
	m.put("<dl class=\"counts\">\n")
	for _, n := range all {
		m.put("<div><dt>%v</dt><dd>%v</dd></div>\n", n.name, n.value)
	}
	m.put("</dl>\n")
}

// workloads writes the counters of an agent of many identities.
func (m *markup) workloads(n *identities.Counts) {
	if n == nil {
		return
	}
	m.section("workloads", "Workloads", func() {
		m.numbers([]number{
			{"Identities", n.Identities}, {"With a certificate", n.Held}, {"Waiting for a certificate", n.Missing}, {"Expired", n.Expired},
			{"Without a stream", n.Idle}, {"Unverified tokens", n.Unverified}, {"Requests in flight", n.InFlight}, {"Undecided at the CA", n.Pending},
			{"Rotations", n.Rotations}, {"Tokens rejected", n.Refused}, {"Streams rejected", n.TurnedAway},
		})
		m.put("<dl class=\"facts\">\n")
		m.at("First renewal", n.NextRenewal)
		m.at("First expiry", n.NextExpiry)
		m.failure("Last failure", n.Failure)
		m.put("</dl>\n")
	})
}

func (m *markup) stream(s Stream) {
	m.put("\n<tr><th scope=\"row\">%v</th><td>%v</td><td>", clean(s.Caller), clean(s.Node))
	m.moment(s.Since)
	m.put("</td><td>")
	if s.LastPush.IsZero() {
		m.put("none")
	} else {
		m.moment(s.LastPush)
	}
	m.put("</td>")
	for _, n := range []int{s.Pushed, s.Acked, s.Nacked} {
		m.put("<td class=\"n\">%v</td>", n)
	}
	m.put("</tr>")
}
