package secret

import "strings"

// owners says which secret each name belongs to. A lookup does not visit all names.
type owners struct {
	secrets map[string]string   // by name
	below   map[string][]string // the names that a wildcard covers, by the domain after its "*."
}

func ownersOf(secrets []Spec) *owners {
	o := &owners{secrets: make(map[string]string), below: make(map[string][]string)}
	for _, spec := range secrets {
		for _, name := range spec.Identity.Names() {
			o.secrets[name] = spec.Name
			if _, domain, ok := strings.Cut(name, "."); ok {
				o.below[domain] = append(o.below[domain], name)
			}
		}
	}
	return o
}

// other returns a name of another secret than own that is the same as name, covers it or is
// covered by it, and its owner. A wildcard stands for one label (RFC 9525, section 6.3). A nil
// *owners has no names.
func (o *owners) other(name, own string) (taken, owner string, found bool) {
	if o == nil {
		return "", "", false
	}
	_, domain, _ := strings.Cut(name, ".")
	for _, taken := range []string{name, "*." + domain} {
		if owner, ok := o.secrets[taken]; ok && owner != own {
			return taken, owner, true
		}
	}
	if !strings.HasPrefix(name, "*.") {
		return "", "", false
	}
	for _, taken := range o.below[domain] {
		if owner := o.secrets[taken]; owner != own {
			return taken, owner, true
		}
	}
	return "", "", false
}
