package endpoint

import (
	"strings"
	"testing"
)

func TestOnlyHTTPSURLsAreAccepted(t *testing.T) {
	for text, want := range map[string]string{
		"https://issuer.example/path":        "",
		"https://[::1]:6443":                 "",
		"http://127.0.0.1:8080/keys":         "is not https",
		"http://localhost":                   "is not https",
		"ftp://issuer.example":               "is not https",
		"https://":                           "invalid URL",
		"https:issuer.example":               "invalid URL",
		"issuer.example":                     "invalid URL",
		"/etc/passwd":                        "invalid URL",
		"":                                   "invalid URL",
		"https://issuer.example/\x00":        "invalid URL",
		"https://me:secret@issuer.example/x": "has a user in it",
	} {
		err := CheckURL(text, false)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, ok := range map[string]bool{
		"http://127.0.0.1:8080": true, "http://127.9.9.9": true, "http://[::1]/x": true, "http://localhost:80": true,
		"http://10.0.0.1": false, "http://localhost.evil.example": false, "http://127.0.0.1.evil.example": false, "ftp://127.0.0.1": false,
		"http://0.0.0.0": false, "http://127.1": false,
	} {
		if err := CheckURL(text, true); (err == nil) != ok {
			t.Errorf("%q, loopback allowed: %v", text, err)
		}
	}
}
