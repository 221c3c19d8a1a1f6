package text_test

import (
	"testing"

	"github.com/countersign-dev/countersign/internal/suggest"
)

func TestNearestKnownWordIsFound(t *testing.T) {
	known := []string{"trust_domain", "socket", "providers", "ttl", "log", "path", "agent"}
	for word, want := range map[string]string{
		"trustdomain": "trust_domain", "sokcet": "socket", "Provider": "providers", "tll": "ttl", "unrelated": "", "": "",
		"foo": "", "lgo": "log", "gol": "", "lg": "log", "pth": "path", "agnet": "agent",
	} {
		if got := suggest.Word(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
