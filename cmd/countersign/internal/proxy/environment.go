package proxy

import (
	"maps"
	"slices"
	"strings"
)

// own lists the prefixes of variables that are only for the agent: its settings, its tokens,
// those that a plugin host or systemd passed to it.
var own = []string{"COUNTERSIGN_", "CA_HEADER_", "PLUGIN_", "LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"}

// inherited reports whether the proxy inherits a variable of the agent. It inherits no token;
// one that it needs belongs in Env.
func (p *Proxy) inherited(name string) bool {
	return !slices.Contains(p.cfg.Withheld, name) && !slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) &&
		!strings.HasSuffix(strings.ToUpper(name), "TOKEN")
}

// environment returns the environment of the proxy and of a reload command.
func (p *Proxy) environment() []string {
	vars := map[string]string{}
	for _, v := range p.cfg.Environ {
		if name, value, ok := strings.Cut(v, "="); ok && p.inherited(name) {
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
