package folder

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/discovery"
)

// generationOf is one of these files, in their order.
func generationOf(t *testing.T, files ...string) *generation {
	t.Helper()
	g := newGeneration()
	for i, content := range files {
		f, err := parse([]byte(content))
		if err == nil {
			err = g.add(fmt.Sprintf("%d.yaml", i), f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func TestChangesBetweenGenerations(t *testing.T) {
	to := func(namespace string) string { return "for: {namespaces: [" + namespace + "]}\n---\n" }
	host := func(ip string) string { return "hosts: {db: {ips: [" + ip + "]}}" }
	slow := strings.Replace(cluster, "1s", "2s", 1)
	web, lists := []key{{ClusterURL, "web"}}, []string{ClusterURL}
	for name, c := range map[string]struct {
		before, now []string
		keys        []key
		lists       []string
	}{
		"nothing":                    {[]string{cluster}, []string{"# the same\n" + cluster}, nil, nil},
		"a file's name":              {[]string{second, cluster}, []string{cluster, second}, nil, nil},
		"content":                    {[]string{cluster, second}, []string{slow, second}, web, nil},
		"a new one":                  {nil, []string{cluster}, web, lists},
		"one that is gone":           {[]string{cluster}, nil, web, lists},
		"the clients it is for":      {[]string{to("a") + cluster}, []string{to("b") + cluster}, web, lists},
		"one for others, too":        {[]string{to("a") + cluster}, []string{to("a") + cluster, to("b") + cluster}, web, lists},
		"one for others no more":     {[]string{to("a") + cluster, to("b") + cluster}, []string{to("b") + cluster}, web, lists},
		"that of the first of two":   {[]string{to("a") + cluster, to("b") + cluster}, []string{to("a") + slow, to("b") + cluster}, web, nil},
		"that of the second of two":  {[]string{to("a") + cluster, to("b") + cluster}, []string{to("a") + cluster, to("b") + slow}, web, nil},
		"a host's address":           {[]string{host("10.0.0.1")}, []string{host("10.0.0.2")}, []key{{NameTableURL, "db"}}, nil},
		"what is named, not its own": {[]string{cluster}, []string{cluster + "---\n" + second}, []key{{ClusterURL, "second"}}, lists},
	} {
		t.Run(name, func(t *testing.T) {
			keys, lists := generationOf(t, c.now...).changed(generationOf(t, c.before...))
			if !slices.Equal(keys, c.keys) || !slices.Equal(lists, c.lists) {
				t.Errorf("got %v and %v, want %v and %v", keys, lists, c.keys, c.lists)
			}
		})
	}
}

func TestCallerGetsResourcesOfAllMatchingFiles(t *testing.T) {
	of := func(name string) string {
		return strings.Replace(second, "second", name, 1) + "---\nhosts: {" + name + ": {ips: [10.0.0.1]}}"
	}
	g := generationOf(t, of("z"), "for: {namespaces: [ingress]}\n---\n"+of("b"), "for: {clusters: [east]}\n---\n"+of("a"), "for: {namespaces: [shop]}\n---\n"+of("c"), of("y"))
	if n := len(g.tos); n != 4 {
		t.Errorf("%d selectors, want 4: two files are for everyone", n)
	}
	if names := g.view(gateway(t)).names[ClusterURL]; !slices.Equal(names, []string{"a", "b", "y", "z"}) {
		t.Errorf("it has %q, want them sorted", names)
	}
	if names := g.view(&discovery.Caller{}).names[ClusterURL]; !slices.Equal(names, []string{"y", "z"}) {
		t.Errorf("no client has %q", names)
	}
	if g.resource(gateway(t), key{NameTableURL, "a"}) != nil {
		t.Error("a host is taken for a name table")
	}
}

// Of several reasons it is the same each time, so that it is logged once.
func TestFirstDuplicateNameIsReported(t *testing.T) {
	const want = `cluster "second" is already in 0.yaml`
	routes := "---\n\"@type\": " + RouteURL + "\nname: a"
	f, err := parse([]byte(cluster + "---\n" + second + routes))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := generationOf(t, cluster+"---\n"+second+routes).add("1.yaml", f); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Fatalf("got %v, want %s", err, want)
		}
	}
}

func TestWarningsAreSortedAndUnique(t *testing.T) {
	var routes strings.Builder
	for i := range 22 {
		fmt.Fprintf(&routes, "  - {match: {prefix: /}, route: {cluster: c%02d}}\n", 21-i/2)
	}
	for i := range 22 {
		fmt.Fprintf(&routes, "  - {match: {prefix: /}, route: {cluster: c%02d}}\n", i)
	}
	f, err := parse([]byte("\"@type\": " + RouteURL + "\nname: routes\nvirtual_hosts:\n- name: all\n  domains: [\"*\"]\n  routes:\n" + routes.String()))
	if err != nil {
		t.Fatal(err)
	}
	warnings := newGeneration().warnings(f)
	if len(warnings) != 20 || !strings.HasPrefix(warnings[0], `cluster "c00" is named here`) || !strings.HasPrefix(warnings[19], `cluster "c19"`) {
		t.Errorf("%d warnings: %q", len(warnings), warnings)
	}
}
