package setup

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
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

// config returns the configuration's text.
func (r *request) config(key string) (string, error) {
	entry, err := r.entry()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("# Written by \"countersign init\". See countersign.yaml(5), or docs/operators.md. Check a change with:\n#   countersign config validate\n\n")
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
		allowed, err := r.allowed()
		if err != nil {
			return "", err
		}
		text.WriteString("\n# Envoy asks here, over SDS. The agent answers root, its own user, and the users listed by number.\nsocket:\n  path: /run/countersign/socket\n  mode: \"0666\"\n" + allowed)
	}
	text.WriteString("\n# Health, metrics, the status page and \"countersign secrets renew\".\nstatus: {address: unix:/run/countersign/status}\n")
	return text.String(), nil
}

// allowed admits the user of Envoy.
func (r *request) allowed() (string, error) {
	name := r.user
	if name == "" {
		name = "envoy" // that of Envoy's packages
	}
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		return "  allow_uids: [" + name + "]\n", nil
	}
	found, err := user.Lookup(name)
	switch _, unknown := errors.AsType[user.UnknownUserError](err); {
	case unknown && r.user == "":
		return "  # allow_uids: [101]   # what \"id -u\" prints for Envoy's user\n", nil
	case unknown:
		return "", fmt.Errorf("--user is %.64q: this machine has no such user; pass the number of the one that Envoy runs as", r.user)
	case err != nil:
		return "", fmt.Errorf("failed to look up the user %.64q: %w", name, err)
	}
	return "  allow_uids: [" + found.Uid + "]\n", nil
}
