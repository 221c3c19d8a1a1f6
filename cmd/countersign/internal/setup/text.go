package setup

import (
	"fmt"
	"os/user"
	"strings"
)

// nginxRule is that of examples/nginx.
const nginxRule = `// Lets the agent's user reload nginx, and nothing else: copy it to /etc/polkit-1/rules.d. It needs
// polkit (on Debian: apt-get install polkitd), which reads the folder again when it changes.
polkit.addRule(function(action, subject) {
    if (action.id == "org.freedesktop.systemd1.manage-units" && subject.user == "countersign" &&
        action.lookup("unit") == "nginx.service" && action.lookup("verb") == "reload") {
        return polkit.Result.YES;
    }
});
`

// entries are the providers' entries.
var entries = map[string]string{
	"file": `# A CA of the agent's own, to try things with. No other machine trusts it.
providers:
- name: file
  settings: {dir: /var/lib/countersign/ca, self_signed: true}
`,
	"vault": `# "countersign provider docs vault" lists the settings.
providers:
- name: vault
  settings:
    url: https://vault.example.org:8200
    role: web
    # root_file: /etc/countersign/vault-root.pem   # default: the system's roots
    login:
      method: approle
      role_id: write-it-here
      secret_id_file: /etc/countersign/vault-secret-id   # the agent's user alone may read it
`,
	"acme": `# Let's Encrypt. Try https://acme-staging-v02.api.letsencrypt.org/directory first: its limits are generous,
# and no browser trusts it. The name must resolve to this machine, whose port 80 must reach the agent.
providers:
- name: acme
  settings:
    url: https://acme-v02.api.letsencrypt.org/directory
    state_dir: /var/lib/countersign/acme
    accept_terms: %t   # of the CA's terms of service
    # The server on port 80 forwards /.well-known/acme-challenge/ to it.
    listen: 127.0.0.1:8402
`,
}

func (r *request) config(key string) string {
	var text strings.Builder
	text.WriteString("# Written by \"countersign init\". See countersign.yaml(5), or docs/operators.md. Check a change with:\n#   countersign config validate\n\n")
	entry := entries[r.provider]
	if r.provider == "acme" {
		entry = fmt.Sprintf(entry, r.acceptTerms)
	}
	text.WriteString(entry)
	fmt.Fprintf(&text, "\nsecrets:\n- name: default\n  dns_names: [%q]\n", r.name)
	fmt.Fprintf(&text, "\n# What the agent holds outlives a restart, encrypted. Without it, each start orders new certificates.\nstate: {dir: /var/lib/countersign/state, key_file: %s}\n", key)
	if r.nginx {
		text.WriteString(`
# nginx reads files, and systemd reloads it after each rotation.
socket: {enabled: false}
outputs:
- name: nginx
  folder: /var/lib/countersign/nginx
  link: current
  files:
  - {name: chain.pem, content: chain}
  - {name: key.pem, content: key}
  reload: {command: [/usr/bin/systemctl, reload, nginx.service]}
`)
	} else {
		text.WriteString("\n# Envoy asks here, over SDS. The agent answers root, its own user, and the users listed by number.\nsocket:\n  path: /run/countersign/socket\n  mode: \"0666\"\n" + allowed())
	}
	text.WriteString("\n# Health, metrics, the status page and \"countersign secrets renew\".\nstatus: {address: unix:/run/countersign/status}\n")
	return text.String()
}

// allowed admits the user of Envoy's packages, if there is one.
func allowed() string {
	if envoy, err := user.Lookup("envoy"); err == nil {
		return "  allow_uids: [" + envoy.Uid + "]\n"
	}
	return "  # allow_uids: [101]   # what \"id -u\" prints for Envoy's user\n"
}
