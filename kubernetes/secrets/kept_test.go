package secrets

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/discovery"
)

// A folder's file that is written badly keeps its last good version, too.
func TestMalformedVersionKeepsLastGoodSecret(t *testing.T) {
	s := newScene(t, nil)
	c, other := caller("home", "shop", "web"), caller("home", "shop", "other")
	set := func(d data) {
		s.at("home").put("shop/foo", d)
		s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
	}
	stop, err := s.Watch(c, "kubernetes://foo", func(string) {})
	must(t, err)
	set(tlsOf("a"))
	for _, bad := range []data{{"tls.crt": []byte("no PEM"), "tls.key": of("a").key}, {}, {"tls.crt": of("b").cert, "tls.key": of("a").key}} {
		if got := s.had(t, c, "kubernetes://foo"); got != "key a" {
			t.Errorf("the good one: %s", got)
		}
		set(bad)
		for who, caller := range map[string]*discovery.Caller{"who watches": c, "another": other} {
			if got := s.had(t, caller, "kubernetes://foo"); got != "key a" {
				t.Errorf("%s has %s of a malformed one", who, got)
			}
		}
		if w := s.Watched(); len(w) != 1 || w[0].State != Broken || !w[0].Kept || w[0].Problem == "" || w[0].Ends.IsZero() {
			t.Errorf("it is shown as %+v", w)
		}
	}
	if n := s.Counts(); n.Malformed != 3 || n.Refused[Malformed] != 0 {
		t.Errorf("counted: %+v", n)
	}
	if !strings.Contains(s.log.String(), "serving its last good version") {
		t.Errorf("logged:\n%s", s.log)
	}
	// Who comes back meanwhile has it; a good version replaces it.
	stop()
	stop, _ = s.Watch(c, "kubernetes://foo", func(string) {})
	defer stop()
	if got := s.had(t, c, "kubernetes://foo"); got != "key a" {
		t.Errorf("who comes back has %s", got)
	}
	set(tlsOf("c"))
	if got := s.had(t, c, "kubernetes://foo"); got != "key c" {
		t.Errorf("of the next good one: %s", got)
	}
}

func TestGoneSecretIsNotKept(t *testing.T) {
	for name, goes := range map[string]func(*scene){
		"the object": func(s *scene) {
			s.at("home").remove("shop/foo")
			s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
			if _, err := s.Peek(caller("home", "shop", "web"), "kubernetes://foo"); err == nil {
				panic("it is there")
			}
		},
		"this instance": func(s *scene) { s.at("home").id = "another" }, // has its UID from it
		"the cluster":   func(s *scene) { s.Changed(Event{Cluster: "home"}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil)
			c := caller("home", "shop", "web")
			stop, err := s.Watch(c, "kubernetes://foo", func(string) {})
			must(t, err)
			defer stop()
			s.at("home").put("shop/foo", tlsOf("a"))
			if got := s.had(t, c, "kubernetes://foo"); got != "key a" {
				t.Fatal(got)
			}
			goes(s)
			s.at("home").put("shop/foo", data{})
			s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
			if got := s.had(t, c, "kubernetes://foo"); got != "malformed" {
				t.Errorf("there is %s", got)
			}
		})
	}
}

func TestUnwatchedKeyIsNotKept(t *testing.T) {
	s := newScene(t, nil)
	c := caller("home", "shop", "web")
	stop, err := s.Watch(c, "kubernetes://foo", func(string) {})
	must(t, err)
	s.at("home").put("shop/foo", tlsOf("a"))
	_ = s.had(t, c, "kubernetes://foo")
	stop()
	if n := len(s.good.of); n != 0 {
		t.Errorf("%d objects are kept", n)
	}
}
