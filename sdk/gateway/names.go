package gateway

import "strings"

// caSuffix ends the names of the CA part of a secret.
const caSuffix = "-cacert"

// maxPart is the longest name of a Kubernetes object (RFC 1123 subdomain), and room for
// caSuffix.
const maxPart = 253 + len(caSuffix)

// schemes are the names that are served, and whether the namespace may be left out.
var schemes = []struct {
	prefix string
	short  bool
}{
	{"kubernetes://", true},
	{"kubernetes-gateway://", false},
	{"configmap://", false},
}

// valid tells whether a name is one of a Kubernetes object: kubernetes://[<ns>/]<name>,
// kubernetes-gateway://<ns>/<name> or configmap://<ns>/<name>. Names that the agent has of
// its own never reach the service.
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
