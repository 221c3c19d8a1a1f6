package proxy

import (
	"maps"
	"slices"
	"strings"
)

// own are the beginnings of names that are the agent's alone: its settings, what it
// sends to a CA, what a host told it as a provider, what systemd told it.
var own = []string{"COUNTERSIGN_", "CA_HEADER_", "PLUGIN_", "LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_"}

// inherited tells whether the proxy gets a variable of the agent's. A token is
// nobody's but the agent's; what the proxy needs of that kind is written in Env.
func inherited(name string) bool {
	return !slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) &&
		!strings.HasSuffix(strings.ToUpper(name), "TOKEN")
}

// environment is what the proxy, and a reload command, is started with.
func (p *Proxy) environment() []string {
	vars := map[string]string{}
	for _, v := range p.cfg.Environ {
		if name, value, ok := strings.Cut(v, "="); ok && inherited(name) {
			vars[name] = value
		}
	}
	for name, value := range p.cfg.Env {
		vars[name] = strings.ReplaceAll(value, "{locality}", p.zone())
	}
	env := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}
