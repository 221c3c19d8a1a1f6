package reference

import (
	"slices"
	"testing"
)

func TestSecretTextsAreFoundAtAnyDepth(t *testing.T) {
	settings := map[string]any{
		"address": "ca.example.org", "password": "hunter22", "pin": "123",
		"logins": []any{map[string]any{"user": "alice", "phrase": "open sesame"}}, "vault": map[string]any{"a": "below", "n": 7.0},
	}
	got := Paths{"/password", "/pin", "/logins/*/phrase", "/vault"}.Texts(settings)
	slices.Sort(got)
	if want := []string{"below", "hunter22", "open sesame"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := (Paths{"/*"}).Texts(settings); len(got) != 5 {
		t.Errorf("of all: %q", got)
	}
}
