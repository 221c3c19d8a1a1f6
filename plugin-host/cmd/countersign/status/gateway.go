package status

import (
	"github.com/countersign-dev/countersign/sdk/gateway"
)

// maxNames of a gateway are shown.
const maxNames = 100

// gateway writes what is held of a discovery service.
func (m *markup) gateway(g *gateway.Status) {
	if g == nil {
		return
	}
	m.section("gateway", "Gateway", func() {
		m.put("<dl class=\"facts\">\n")
		m.id("Discovery service", clean(g.Address))
		m.put("<dt>It is</dt><dd>%v</dd>\n", presence(g))
		m.at("Since", g.Since)
		m.fact("Known by", clean(g.Credential))
		if g.Failure != nil {
			m.failure(g.Failure)
			m.fact("It says", clean(g.Failure.Text))
		}
		m.put("</dl>\n")
		if len(g.Names) == 0 {
			m.put("<p>No Envoy has asked for a name.</p>\n")
			return
		}
		m.table("gateway-names", "Names of the gateway", "Names that its Envoys watch",
			[]string{"Name", "State", "Taken", "Valid until", "Watched by", "Last one refused"}, func() {
				for _, name := range g.Names[:min(maxNames, len(g.Names))] {
					m.gatewayName(name)
				}
			})
	})
}

func presence(g *gateway.Status) string {
	switch {
	case g.Connected:
		return "there"
	case g.Failure != nil:
		return "away; what is held is served on"
	}
	return "not asked"
}

func (m *markup) gatewayName(n gateway.Name) {
	m.put("\n<tr><th scope=\"row\">%v</th><td>%v</td><td>", clean(n.Name), clean(n.State))
	if !n.Since.IsZero() {
		m.moment(n.Since)
	}
	m.put("</td><td>")
	if !n.NotAfter.IsZero() {
		m.moment(n.NotAfter)
	}
	m.put("</td><td class=\"n\">%v</td><td>%v</td></tr>", n.Watchers, clean(n.Refused))
}
