package gateway

import "strings"

// caSuffix marks the CA part of a secret.
const caSuffix = "-cacert"

// maxPart is the maximum length of a Kubernetes object name (RFC 1123 subdomain), plus
// caSuffix.
const maxPart = 253 + len(caSuffix)

// schemes lists the schemes served and whether the namespace is optional.
var schemes = []struct {
	prefix string
	short  bool
}{
	{"kubernetes://", true},
	{"kubernetes-gateway://", false},
	{"configmap://", false},
}

// valid reports whether a name refers to a Kubernetes object:
// kubernetes://[<ns>/]<name>, kubernetes-gateway://<ns>/<name> or
// configmap://<ns>/<name>. The agent's own names never reach the service.
func valid(name string) bool {
	for _, s := range schemes {
		if rest, ok := strings.CutPrefix(name, s.prefix); ok {
			namespace, object, long := strings.Cut(rest, "/")
			if !long {
				return s.short && isObject(rest)
			}
			return isObject(namespace) && isObject(object)
		}
	}
	return false
}

func isObject(name string) bool {
	return name != "" && len(name) <= maxPart && strings.Trim(name, "-.") == name &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.'
		})
}
