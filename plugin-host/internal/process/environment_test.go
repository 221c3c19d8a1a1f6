package process

import (
	"slices"
	"testing"
)

func TestProxyVariablesInEitherCaseReachProvider(t *testing.T) {
	host := []string{"https_proxy=http://p:1", "no_proxy=ca.example", "HTTP_PROXY=http://p:2", "VAULT_TOKEN=x", "all_proxy=http://p:3", "PATH=/bin"}
	if got, want := environment(host, nil, nil, nil), []string{"HTTP_PROXY=http://p:2", "PATH=/bin", "https_proxy=http://p:1", "no_proxy=ca.example"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Go and curl differ in which case they take first, so that the entry's has to be the only one.
	entry := map[string]string{"NO_PROXY": "own.example", "http_proxy": "http://q:1"}
	if got, want := environment(host, nil, entry, nil), []string{"NO_PROXY=own.example", "PATH=/bin", "http_proxy=http://q:1", "https_proxy=http://p:1"}; !slices.Equal(got, want) {
		t.Errorf("with the entry's: %q, want %q", got, want)
	}
}
