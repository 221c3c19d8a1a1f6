package config

import (
	"strings"
	"testing"
)

func TestStoreIsCheckedWithItsRules(t *testing.T) {
	const rule = "secrets: [{match: \"*.example.org\", provider: acme, on_demand: {ask: {file: /names}}}]\n"
	const head = "dev: true\nproviders: [{name: acme, settings: {challenge: CHALLENGE}}, {name: file, settings: {dir: ./ca}}]\ndefault_provider: file\n"
	for name, c := range map[string]struct{ store, challenge, rest, want string }{
		"complete":              {"{folder: /mnt/shared, key_file: /etc/key}", "dns-01", rule, ""},
		"http-01":               {"{folder: /mnt/shared, key_file: /etc/key}", "http-01", rule, ""},
		"no key":                {"{folder: /mnt/shared}", "dns-01", rule, "store.key_file"},
		"no folder":             {"{key_file: /etc/key}", "dns-01", rule, "store.folder"},
		"a key in the folder":   {"{folder: /mnt/shared, key_file: /mnt/shared/key}", "dns-01", rule, "it is in store.folder"},
		"the folder of state":   {"{folder: /mnt/shared, key_file: /etc/key}", "dns-01", rule + "state: {dir: /mnt/shared, key_file: /etc/key}\n", "write another folder"},
		"tls-alpn-01":           {"{folder: /mnt/shared, key_file: /etc/key}", "tls-alpn-01", rule, "write dns-01, or http-01 with webroot"},
		"tls-alpn-01 elsewhere": {"{folder: /mnt/shared, key_file: /etc/key}", "tls-alpn-01", "secrets: [{match: \"*.example.org\", provider: file}]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c0, _, err := Read(Input{File: []byte(strings.Replace(head, "CHALLENGE", c.challenge, 1) + c.rest + "store: " + c.store + "\n"), FileName: "c.yaml"})
			if err == nil {
				err = c0.Complete()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err == nil && strings.Contains(strings.Join(c0.warnings, "\n"), "state is not set") {
				t.Errorf("warnings %q", c0.warnings)
			}
		})
	}
}

func TestStoreInKubernetesIsChecked(t *testing.T) {
	const head = "dev: true\nproviders: [{name: file, settings: {dir: ./ca}}]\nsecrets: [{match: \"*.example.org\"}]\nstore: "
	for store, want := range map[string]string{
		"{kubernetes: {namespace: certificates}}":                                                       "",
		"{kubernetes: {namespace: certificates, tls_secrets: true}}":                                    "",
		"{kubernetes: {namespace: c, url: https://10.0.0.1, root_file: /r, token_file: /t}}":            "",
		"{kubernetes: {tls_secrets: true}}":                                                             "store.kubernetes.namespace",
		"{kubernetes: {namespace: a/b}}":                                                                "want the name of one",
		"{kubernetes: {namespace: c}, folder: /mnt/shared, key_file: /etc/key}":                         "keep one store",
		"{kubernetes: {namespace: c}, key_file: /etc/key}":                                              "keep one store",
		"{kubernetes: {namespace: c, url: https://10.0.0.1}}":                                           "url and token_file",
		"{kubernetes: {namespace: c, token_file: /t}}":                                                  "url and token_file",
		"{kubernetes: {namespace: c, root_file: /r}}":                                                   "root_file",
		"{kubernetes: {namespace: c, url: http://10.0.0.1, root_file: /r, token_file: /t}}":             "not https",
		"{kubernetes: {namespace: c, url: 'https://u:sesame@10.0.0.1', root_file: /r, token_file: /t}}": "has a user",
	} {
		c, _, err := Read(Input{File: []byte(head + store + "\n"), FileName: "c.yaml"})
		if err == nil {
			err = c.Complete()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", store, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "sesame") || err == nil && strings.Contains(strings.Join(c.warnings, "\n"), "state is not set") {
			t.Errorf("%s: %v, %q", store, err, c.warnings)
		}
	}
}
