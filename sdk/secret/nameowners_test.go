package secret

import (
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// covers reports whether a wildcard covers a name.
func covers(pattern, name string) bool {
	parent, wild := strings.CutPrefix(pattern, "*.")
	_, rest, _ := strings.Cut(name, ".")
	return wild && rest == parent
}

func TestOwnersFindWhatNameOverlaps(t *testing.T) {
	var names []string
	for _, domain := range []string{"example.org", "example.com", "a.example.org"} {
		for _, label := range []string{"*", "web", "db", "a"} {
			names = append(names, label+"."+domain)
		}
	}
	names = append(names, "localhost", "*.org", "spiffe://example.org/web")
	for skip := range names { // each set lacks one, so that others are found
		var secrets []Spec
		for i, name := range names {
			if i != skip && i%2 == skip%2 {
				id := pki.Identity{DNSNames: []string{name}}
				secrets = append(secrets, Spec{Name: fmt.Sprint("secret of ", name), Identity: id})
			}
		}
		owners := ownersOf(secrets)
		for _, name := range names {
			own := "secret of " + name
			want := false
			for _, s := range secrets {
				other := s.Identity.DNSNames[0]
				want = want || s.Name != own && (name == other || covers(name, other) || covers(other, name))
			}
			other, owner, found := owners.other(name, own)
			if found != want || found && (owner != "secret of "+other || name != other && !covers(name, other) && !covers(other, name)) {
				t.Errorf("%s: found %t, %q of %q; want %t among %d names", name, found, other, owner, want, len(secrets))
			}
		}
	}
}
