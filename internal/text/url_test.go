package text

import "testing"

func TestPasswordOfAnAddressIsHidden(t *testing.T) {
	for text, want := range map[string]string{
		"https://u:geheim@host/path":        "https://u:xxxxx@host/path",
		"u:geheim@host:8200":                "u:xxxxx@host:8200",
		"u:ge%zzim@host:8200":               "u:xxxxx@host:8200",
		"https://u:ge%zzim@host":            "https://u:xxxxx@host",
		"https://u:ge#heim@host":            "https://u:xxxxx@host",
		"https://u:ge@heim%zz@host":         "https://u:xxxxx@host",
		"vault://https://u:geheim@host":     "vault://https://u:xxxxx@host",
		"u:geheim\n@host":                   "u:xxxxx@host",
		":geheim@host":                      ":xxxxx@host",
		"https://u:ge@heim%zz@h?a=http://x": "https://u:xxxxx@h?a=http://x",
		"u:ge://heim@host":                  "u:xxxxx@host",
		// These have none.
		"":                       "",
		"u@host:8200":            "u@host:8200",
		"host:8200":              "host:8200",
		"https://host/a:b@c":     "https://host/a:b@c",
		"https://host?a=b:c@d":   "https://host?a=b:c@d",
		"unix:@abstract":         "unix:@abstract",
		"unix:/run/ca@1.sock":    "unix:/run/ca@1.sock",
		"unix:///run/ca@1.sock":  "unix:///run/ca@1.sock",
		"u:@host":                "u:@host",
		"file:///run/a:b@c":      "file:///run/a:b@c",
		"mailto:me@example.org":  "mailto:me@example.org",
		"arn:aws:acm-pca:x:y/z":  "arn:aws:acm-pca:x:y/z",
		"spiffe://td/ns/a/sa/b":  "spiffe://td/ns/a/sa/b",
		"file:///etc/ca":         "file:///etc/ca",
		"/run/secrets/token@new": "/run/secrets/token@new",
	} {
		if got := WithoutPassword(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
