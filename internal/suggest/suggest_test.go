package suggest

import "testing"

func TestNearestKnownWordIsFound(t *testing.T) {
	known := []string{"trust_domain", "socket", "providers", "ttl"}
	for word, want := range map[string]string{
		"trustdomain": "trust_domain", "sokcet": "socket", "Provider": "providers", "tll": "ttl", "unrelated": "", "": "",
	} {
		if got := Word(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
