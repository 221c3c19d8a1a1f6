package process

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// passed are the host's variables that a provider inherits. It gets no others, above all
// no tokens and cloud keys. curl and most of Linux write the proxies in lower case.
var passed = []string{
	"PATH", "HOME", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// environment returns a provider's environment: the passed variables of host, those for
// its user and limits, the entry's and the protocol's; later ones win.
func environment(host, confined []string, entry map[string]string, protocol []string) []string {
	vars := map[string]string{}
	for _, v := range host {
		if key, value, ok := strings.Cut(v, "="); ok && slices.Contains(passed, key) {
			vars[key] = value
		}
	}
	for _, v := range confined {
		key, value, _ := strings.Cut(v, "=")
		vars[key] = value
	}
	for key := range entry {
		if other := strings.ToLower(key); strings.HasSuffix(other, "_proxy") {
			delete(vars, other) // programs differ in which case they take first
			delete(vars, strings.ToUpper(key))
		}
	}
	maps.Copy(vars, entry)
	for _, v := range protocol {
		key, value, _ := strings.Cut(v, "=")
		vars[key] = value
	}
	env := make([]string, 0, len(vars))
	for key, value := range vars {
		env = append(env, key+"="+value)
	}
	slices.Sort(env)
	return env
}

// CheckEnvironment refuses invalid variables and the protocol's own.
func CheckEnvironment(entry map[string]string) error {
	for key, value := range entry {
		switch {
		case key == "" || strings.ContainsAny(key, "=\x00"):
			return fmt.Errorf("env: %s is not a valid variable name", text.Quote(key))
		case strings.Contains(value, "\x00"):
			return fmt.Errorf("env: the value of %s contains a NUL byte", key)
		case strings.HasPrefix(key, "PLUGIN_") || strings.HasPrefix(key, "COUNTERSIGN_"):
			return fmt.Errorf("env: %s is reserved: names starting with PLUGIN_ or COUNTERSIGN_ belong to the host", text.Quote(key))
		}
	}
	return nil
}
