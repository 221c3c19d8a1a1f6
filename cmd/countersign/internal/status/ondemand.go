package status

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ondemand"
)

// reasons are the refusals in the words of the page.
var reasons = map[ondemand.Refusal]string{
	ondemand.BadName: "not a DNS name", ondemand.NoRule: "no rule matches", ondemand.Denied: "not allowed", ondemand.Undecided: "not decided",
	ondemand.OverBudget: "over budget", ondemand.Full: "no room", ondemand.Failing: "orders fail", ondemand.TooLate: "too late",
	ondemand.Spelling: "too many spellings",
}

// refusals lists how many requests were refused, by reason.
func refusals(of map[ondemand.Refusal]uint64) string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(of)) {
		if n := of[reason]; n > 0 {
			all = append(all, fmt.Sprintf("%s %d", reasons[reason], n))
		}
	}
	return strings.Join(all, ", ")
}

// ruleBadge is the state of a rule's names.
func ruleBadge(r ondemand.RuleStatus) badge {
	switch {
	case r.Expired > 0:
		return badge{fmt.Sprintf("%d expired", r.Expired), bad}
	case r.Late > 0:
		return badge{fmt.Sprintf("%d renewals are late", r.Late), fair}
	case r.Failing > 0:
		return badge{fmt.Sprintf("%d orders are failing", r.Failing), fair}
	case r.Limit > 0 && r.Names >= r.Limit && (!r.Evicts || r.Idle == 0):
		return badge{"full", fair}
	}
	return badge{"as planned", good}
}

// onDemandTrouble is the worst state of all rules with a sentence about it; empty if all is well.
func (r Report) onDemandTrouble() badge {
	worst := badge{"", good}
	if r.OnDemand == nil {
		return worst
	}
	for _, rule := range r.OnDemand.Rules {
		if b := ruleBadge(rule); b.Grade != good && worse(worst.Grade, b.Grade) != worst.Grade {
			worst = badge{fmt.Sprintf("Names on demand of %s: %s.", clean(rule.Name), b.Words), b.Grade}
		}
	}
	return worst
}

// OnDemandStreams counts the open streams that have names on demand.
type OnDemandStreams struct {
	StateOfTheWorld int `json:"state_of_the_world,omitempty"` // not incremental
	Single          int `json:"single,omitempty"`             // with one name each
}

// manySingle is how many streams with one name each show that a proxy opens one for each name.
const manySingle = 100

// Trouble is why clients ask for names in a way that fails some handshakes; empty if they do not.
func (s OnDemandStreams) Trouble() string {
	switch {
	case s.StateOfTheWorld > 0:
		return "Envoy asks for names on demand by state of the world, and handshakes for refused names hang: set api_type to DELTA_GRPC."
	case s.Single >= manySingle:
		return fmt.Sprintf("Envoy opens a stream for each name on demand, %d now, and its circuit breaker allows 1,024 by default: use ADS.", s.Single)
	}
	return ""
}

// onDemand writes the rules for names that clients ask for. It shows few such names: those that expire
// first, and that of a failure.
func (m *markup) onDemand(s *ondemand.Status) {
	if s == nil || len(s.Rules) == 0 {
		return
	}
	m.section("on-demand", "Names on demand", func() {
		if refused := refusals(s.Refused); refused != "" {
			m.put("<p>Refused without a rule: %v.</p>\n", refused)
		}
		if of := s.Storage; of != nil && of.Foreign+of.Damaged > 0 {
			m.put("<p>In the shared store, since the start: %v times an object of another client, %v times a record that cannot be used. See the log.</p>\n", of.Foreign, of.Damaged)
		}
		for i, r := range s.Rules {
			m.rule(r)
			m.expiries(i, r)
		}
	})
}

// expiries writes which names of a rule expire first.
func (m *markup) expiries(i int, r ondemand.RuleStatus) {
	if len(r.Next) == 0 {
		return
	}
	m.table(fmt.Sprintf("on-demand-%d", i), "Names of "+clean(r.Name), "Names that expire first", []string{"Name", "Valid until", "Renewal"}, func() {
		for _, e := range r.Next {
			renewal := "as planned"
			if e.Late {
				renewal = "late"
			}
			m.put("<tr><td>%v</td><td>", clean(e.Name))
			m.moment(e.Ends)
			m.put("</td><td>%v</td></tr>", renewal)
		}
	})
}

func (m *markup) rule(r ondemand.RuleStatus) {
	m.put("<h3>%v</h3>\n", clean(r.Name))
	m.badge(ruleBadge(r))
	m.numbers([]number{
		{"Names", r.Names}, {"Most", r.Limit}, {"With a certificate", r.Held}, {"New", r.New}, {"Expired", r.Expired}, {"Late", r.Late},
		{"Unused", r.Idle}, {"Failing", r.Failing}, {"Clients that wait", r.Waiting}, {"Names that wait", r.Queued}, {"In flight", r.InFlight},
		{"Undecided at the CA", r.Pending},
	})
	m.put("<dl class=\"facts\">\n")
	m.fact("Provider", clean(r.Authority))
	if r.Removed {
		m.fact("Rule", "removed; its names are served until they expire")
	}
	if r.Shared > 0 {
		m.fact("Taken from other machines", strconv.FormatUint(r.Shared, 10))
	}
	m.fact("Refused", refusals(r.Refused))
	if r.BudgetLeft != nil {
		m.fact("Budget left now", strconv.Itoa(*r.BudgetLeft))
	}
	m.at("First renewal", r.NextRenewal)
	m.at("First expiry", r.NextExpiry)
	m.at("First expiry of a late one", r.LateExpiry)
	m.failure("Last failure", r.Failure)
	m.put("</dl>\n")
}
