package status

import (
	"github.com/countersign-dev/countersign/sdk/gateway"
)

// maxNames is how many names of a gateway are shown.
const maxNames = 100

// gateway writes the state of the connection to a discovery service.
func (m *markup) gateway(g *gateway.Status) {
	if g == nil {
		return
	}
	m.section("gateway", "Gateway", func() {
		m.put("<dl class=\"facts\">\n")
		m.id("Discovery service", clean(g.Address))
		m.put("<dt>State</dt><dd>%v</dd>\n", presence(g))
		m.at("Since", g.Since)
		m.fact("Credential", clean(g.Credential))
		if g.Failure != nil {
			m.failure("Last failure", g.Failure)
			m.fact("Error", clean(g.Failure.Text))
		}
		m.put("</dl>\n")
		if len(g.Names) == 0 {
			m.put("<p>No Envoy has requested a name.</p>\n")
			return
		}
		m.table("gateway-names", "Names of the gateway", "Names that Envoys watch",
			[]string{"Name", "State", "Received", "Valid until", "Watched by", "Last rejection"}, func() {
				for _, name := range g.Names[:min(maxNames, len(g.Names))] {
					m.gatewayName(name)
				}
			})
	})
}

func presence(g *gateway.Status) string {
	switch {
	case g.Connected:
		return "connected"
	case g.Failure != nil:
		return "disconnected; serving what is held"
	}
	return "not connected yet"
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
