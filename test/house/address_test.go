//go:build check

package house_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A provider declares which of its settings is the CA's address: no host has its name.
func TestHostsNameNoAddressSetting(t *testing.T) {
	declared := regexp.MustCompile("`json:\"(\\w+)[^`]* address:\"|`json:\"(\\w+)[^`]*\" address:\"")
	var names, hosts []string
	for _, path := range goFiles(t) {
		switch {
		case strings.HasPrefix(path, "providers/"):
			for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
				names = append(names, m[1]+m[2])
			}
		case strings.HasPrefix(path, "cmd/"), strings.HasPrefix(path, "plugin-host/"), strings.HasPrefix(path, "internal/host/"):
			hosts = append(hosts, path)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 5 {
		t.Fatalf("only %q are found", names)
	}
	of := regexp.MustCompile(`[sS]ettings?(\(|\[|\.)"?(` + strings.Join(names, "|") + `)"`)
	if !of.MatchString(`c.setting("ca_arn", value)`) || !of.MatchString(`entry.Settings["url"]`) || !of.MatchString(`c.path("settings.dir")`) {
		t.Fatal("the pattern finds nothing")
	}
	for _, path := range hosts {
		if found := of.FindString(read(t, path)); found != "" {
			t.Errorf("%s has %s: the provider's schema marks its address, see internal/host/address", path, found)
		}
	}
}
