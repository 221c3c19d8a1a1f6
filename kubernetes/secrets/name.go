package secrets

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// caSuffix marks the CA of a secret.
const caSuffix = "-cacert"

// scheme is the first part of a resource name.
type scheme string

const (
	kubernetesScheme scheme = "kubernetes"
	gatewayScheme    scheme = "kubernetes-gateway"
	configMapScheme  scheme = "configmap"
)

// maxName is the length of kubernetes-gateway:// with the longest namespace and name.
const maxName = len(gatewayScheme) + len("://") + validation.DNS1123LabelMaxLength + len("/") + validation.DNS1123SubdomainMaxLength

// ref is a parsed resource name.
type ref struct {
	scheme    scheme
	namespace string // empty means the caller's own
	object    string
	ca        bool // only the CA is requested
}

// parse accepts only names valid in Kubernetes: no escapes, no path traversal, no
// additional slashes.
func parse(name string) (ref, error) {
	if len(name) > maxName {
		return ref{}, fmt.Errorf("name has %d bytes, %d are allowed", len(name), maxName)
	}
	before, rest, _ := strings.Cut(name, "://")
	r := ref{scheme: scheme(before)}
	namespace, object, both := strings.Cut(rest, "/")
	switch r.scheme {
	case kubernetesScheme:
		if !both {
			namespace, object = "", rest
		}
	case gatewayScheme, configMapScheme:
		if !both {
			return ref{}, fmt.Errorf("name has no namespace: must look like %s://shop/web", r.scheme)
		}
	default:
		return ref{}, errors.New("name must begin with kubernetes://, kubernetes-gateway:// or configmap://")
	}
	if both && !isNamespace(namespace) || !isObject(object) {
		return ref{}, errors.New("namespace must be a DNS label and name a DNS subdomain (RFC 1123)")
	}
	r.namespace, r.object = namespace, object
	r.ca = r.scheme == configMapScheme || strings.HasSuffix(object, caSuffix)
	return r, nil
}

func isNamespace(text string) bool {
	return len(text) <= validation.DNS1123LabelMaxLength && isLabel(text)
}

func isObject(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return len(text) <= validation.DNS1123SubdomainMaxLength
}

// isLabel replaces a regular expression of package validation that took a third of a
// push's own time: a name is parsed each time its resource is looked up.
func isLabel(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0 || i == len(text)-1) {
			return false
		}
	}
	return text != ""
}

func (r ref) kind() Kind {
	if r.scheme == configMapScheme {
		return ConfigMap
	}
	return Secret
}

// objects returns the candidate objects of the resource in order of preference:
// foo-cacert is the secret of that name, else the CA of foo.
func (r ref) objects() []string {
	twin, cut := strings.CutSuffix(r.object, caSuffix)
	if cut && isObject(twin) {
		return []string{r.object, twin}
	}
	return []string{r.object}
}
