package kubeconfig

import (
	"context"
	"net"
	"strings"
	"testing"
)

func TestServerURLIsUnambiguous(t *testing.T) {
	for text, want := range map[string]string{
		"https://api.example.org":                    "",
		"https://api.example.org:6443/":              "",
		"https://api.example.org:6443/a/b/":          "",
		"https://10.0.0.1:6443":                      "",
		"https://10.0.0.1":                           "",
		"https://api_1.example.org.":                 "",
		"":                                           "not the URL of a host",
		"api.example.org:6443":                       "not the URL of a host",
		"10.0.0.1:6443":                              "not the URL of a host",
		"/var/run/api.sock":                          "not the URL of a host",
		"unix:///var/run/api.sock":                   "not the URL of a host",
		"unix://api/var/run/api.sock":                "does not use https",
		"ftp://api.example.org":                      "does not use https",
		"http://api.example.org":                     "without TLS",
		"https://me:" + password + "@example.org":    "contains a user",
		"https://me:" + password + "@example.org:x%": "not the URL of a host",
		"https://evil.example\\@api.example.org":     "not the URL of a host",
		"https://api.example.org/\\evil":             "backslash",
		"https://api.example.org?x=" + password:      "a query",
		"https://api.example.org#x":                  "a query",
		"https://api.example.org/a/../b":             "ambiguous path",
		"https://api.example.org//a":                 "ambiguous path",
		"https://api.example.org/a%2fb":              "ambiguous path",
		"https://api.example.org:0":                  "invalid host or port",
		"https://api.example.org:99999":              "invalid host or port",
		"https://127.1":                              "invalid host or port",
		"https://2130706433":                         "invalid host or port",
		"https://0x7f.0.0.0x1":                       "invalid host or port",
		"https://[fe80::1%25eth0]":                   "invalid host or port",
		"https://a..b":                               "invalid host or port",
		"https://bücher.example":                     "invalid host or port",
		"https://169.254.169.254":                    "cannot be a cluster",
		"https://[::ffff:169.254.169.254]":           "cannot be a cluster",
		"https://[64:ff9b::a9fe:a9fe]":               "cannot be a cluster",
		"https://[fd00:ec2::254]":                    "cannot be a cluster",
		"https://[fd20:ce::254]":                     "cannot be a cluster",
		"https://[fd20:ce:0:0:0:0:0:254]":            "cannot be a cluster",
		"https://[fd00:c1::a9fe:a9fe]":               "cannot be a cluster",
		"https://168.63.129.16":                      "cannot be a cluster",
		"https://[::ffff:168.63.129.16]":             "cannot be a cluster",
		"https://[64:ff9b::a83f:8110]":               "cannot be a cluster",
		"https://[fe80::1]":                          "cannot be a cluster",
		"https://100.100.100.200":                    "cannot be a cluster",
		"https://0.0.0.0":                            "cannot be a cluster",
		"https://224.0.0.1":                          "cannot be a cluster",
	} {
		_, err := Parse([]byte(file("server: '"+text+"'", bearer)), Rules{})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), password)) {
			t.Errorf("%s: %v, not %q", text, err, want)
		}
	}
}

func TestServerListMatching(t *testing.T) {
	list := []string{"api.example.org", "*.clusters.example.org", "10.0.0.0/8", "2001:db8::1", "169.254.10.0/24"}
	for host, ok := range map[string]bool{
		"api.example.org": true, "API.Example.org.": true, "a.clusters.example.org": true, "a.b.clusters.example.org": true,
		"10.1.2.3": true, "[::ffff:10.1.2.3]": true, "[2001:db8::1]": true, "169.254.10.1": true,
		"other.example.org": true, // its address decides
		"11.0.0.1":          false, "[2001:db8::2]": false, "169.254.169.254": false,
	} {
		if _, err := Parse([]byte(file("server: https://"+host, bearer)), Rules{Servers: list}); (err == nil) != ok {
			t.Errorf("%s: %v", host, err)
		}
	}
	for host, ok := range map[string]bool{
		"api.example.org": true, "a.example.com": true, "example.com": false, "evilexample.com": false,
		"api.example.org.evil.example": false, "10.0.0.1": false,
	} {
		_, err := Parse([]byte(file("server: https://"+host, bearer)), Rules{Servers: []string{"api.example.org", "*.example.com"}})
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestProxiedNameMustBeListedByName(t *testing.T) {
	rules := Rules{Allow: []string{"proxy-url"}, Servers: []string{"10.0.0.0/8"}}
	text := file(server+"\nproxy-url: http://proxy.example.org:3128", bearer)
	if _, err := Parse([]byte(text), rules); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Error(err)
	}
	rules.Servers = append(rules.Servers, "api.example.org")
	config, err := Parse([]byte(text), rules)
	if err != nil {
		t.Fatal(err)
	}
	if proxy, err := config.Proxy(nil); err != nil || proxy.Host != "proxy.example.org:3128" {
		t.Error(proxy, err)
	}
	secret := strings.Replace(text, "http://proxy", "http://me:"+password+"@proxy", 1)
	if _, err := Parse([]byte(secret), rules); err == nil || strings.Contains(err.Error(), password) || !strings.Contains(err.Error(), "proxy-url") {
		t.Error(err)
	}
}

// A name may resolve to anything, and to something else a moment later.
func TestResolvedAddressIsCheckedAtDial(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dial := func(address string, list ...string) error {
		config, err := Parse([]byte(file("server: https://localhost:"+port, bearer)), Rules{Servers: list})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		conn, err := config.Dial(ctx, "tcp4", address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	for _, list := range [][]string{nil, {"localhost"}, {"127.0.0.0/8"}} {
		if err := dial("localhost:"+port, list...); err != nil {
			t.Errorf("%q: %v", list, err)
		}
		if err := dial("169.254.169.254:80", list...); err == nil || !strings.Contains(err.Error(), "cannot be a cluster") {
			t.Errorf("%q: metadata: %v", list, err)
		}
	}
	if err := dial("localhost:"+port, "10.0.0.0/8"); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Error(err)
	}
}
