package unixsocket_test

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
)

func TestSocketIsNamedByPathOrURI(t *testing.T) {
	for text, want := range map[string]string{
		"/run/s": "/run/s", "./s": "./s", "unix:/run/s": "/run/s", "unix:s": "s", "unix:///run/s": "/run/s",
		"": "", "unix:": "", "unix://": "", "unix://run/s": "", "tcp://127.0.0.1:1": "", "unix:///" + strings.Repeat("x", 107): "",
	} {
		if got, err := unixsocket.ParsePath(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestAddressIsSocketOrHostAndPort(t *testing.T) {
	for text, want := range map[string]string{
		"unix:s": "unix s", "unix:///run/s": "unix /run/s", "127.0.0.1:80": "tcp 127.0.0.1:80", "localhost:80": "tcp localhost:80", "[::1]:80": "tcp [::1]:80",
		"/run/s": "", "127.0.0.1": "", "127.0.0.1:": "", "http://127.0.0.1:80": "", "unix://s": "", "u@h:1": "",
	} {
		at, err := unixsocket.ParseAddress(text)
		if (err == nil) != (want != "") || err == nil && at.Network()+" "+at.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, at, err, want)
		}
	}
}
