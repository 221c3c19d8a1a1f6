package setup

import (
	"fmt"
	"os"
	"os/user"
	"strings"
)

// next returns the steps that follow.
func (r *request) next(config string) string {
	var text strings.Builder
	if r.forwards {
		fmt.Fprintf(&text, "first, have the server on port 80 of %s forward the CA's requests to http://%s", r.name, challenges)
		if r.nginx {
			fmt.Fprintf(&text, ":\nadd this to nginx's server, and reload nginx\n  location /.well-known/acme-challenge/ { proxy_pass http://%s; }", challenges)
		}
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "next: %scountersign provider doctor %s --config %s\n", asAgent(), r.provider, config)
	text.WriteString("then: systemctl enable countersign && systemctl restart countersign\n")
	if r.nginx {
		text.WriteString("last, when \"systemctl status countersign\" shows all secrets as held, add this to nginx's server, and reload nginx\n" +
			"  ssl_certificate     /var/lib/countersign/nginx/current/chain.pem;\n" +
			"  ssl_certificate_key /var/lib/countersign/nginx/current/key.pem;\n")
	} else {
		text.WriteString("last, have Envoy ask /run/countersign/socket for the secret default, over SDS, as docs/public-certificates.md shows\n")
	}
	return text.String()
}

// asAgent begins a command that root runs as the agent's user: a provider that root runs makes
// folders that the agent may not write to, and reads files that it may not read.
func asAgent() string {
	if _, err := user.Lookup("countersign"); err != nil || os.Geteuid() != 0 {
		return ""
	}
	return "runuser -u countersign -- "
}
