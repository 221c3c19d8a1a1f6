package gateway

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const (
	web   = "kubernetes://web"
	other = "kubernetes://other"
)

// good is a secret of that version and many bytes.
func good(version string, bytes int) checked {
	return checked{resource: &xds.Resource{Version: version, Body: &anypb.Any{Value: make([]byte, bytes)}}}
}

// onStore watches names on a store for two names and 100 bytes; the slice gets the notices.
func onStore(t *testing.T, names ...string) (s *store, notices *[]string, stop func()) {
	t.Helper()
	s, notices = newStore(Config{MaxNames: 2, MaxBytes: 100, Linger: time.Minute}), &[]string{}
	stop = func() {}
	for _, name := range names {
		var err error
		if stop, err = s.Watch(secret.Caller{}, name, func(name string) { *notices = append(*notices, name) }); err != nil {
			t.Fatal(err)
		}
	}
	return s, notices, stop
}

func (s *store) mustTake(t *testing.T, name string, c checked) {
	t.Helper()
	if _, err := s.take(name, "sent", c); err != nil {
		t.Fatal(err)
	}
}

func TestShelfHoldsExactlyItsByteLimit(t *testing.T) {
	s, _, _ := onStore(t, web, other)
	s.mustTake(t, web, good("1", 60))
	if _, err := s.take(other, "sent", good("1", 41)); err == nil {
		t.Error("101 bytes are held")
	}
	s.mustTake(t, other, good("1", 40))
	s.mustTake(t, web, good("2", 60)) // in the place of as many
}

func TestDroppedNameFreesItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, stop := onStore(t, web)
		s.mustTake(t, web, good("1", 100))
		stop()
		time.Sleep(time.Minute - 1)
		s.sweep(time.Now())
		if len(s.names()) != 1 {
			t.Error("it is dropped before its time")
		}
		time.Sleep(time.Nanosecond)
		s.sweep(time.Now())
		if len(s.names()) != 0 {
			t.Error("it is not dropped at its time")
		}
		if _, err := s.Watch(secret.Caller{}, other, func(string) {}); err != nil {
			t.Fatal(err)
		}
		s.mustTake(t, other, good("1", 100))
	})
}

func TestRemovedNameIsDroppedAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, stop := onStore(t, web)
		stop()
		time.Sleep(30 * time.Second)
		s.remove(web)
		s.sweep(time.Now())
		if len(s.names()) != 1 {
			t.Error("it is dropped at once")
		}
	})
}

func TestSameContentIsNotifiedOnce(t *testing.T) {
	s, notices, _ := onStore(t, web)
	asked := s.names()[web].id
	for _, version := range []string{"a", "a", "b"} {
		s.mustTake(t, web, good(version, 1))
	}
	s.remove(web)
	if s.remove(web) {
		t.Error("it is taken away twice")
	}
	if id := s.names()[web].id; id == 0 || id != asked {
		t.Error("it would be asked for again")
	}
	s.mustTake(t, web, good("b", 1))
	if want := []string{web, web, web, web}; !slices.Equal(*notices, want) {
		t.Errorf("notified %q", *notices)
	}
}

// A name may be dropped while an answer for it is on its way.
func TestAnswerForDroppedNameIsIgnored(t *testing.T) {
	s, _, _ := onStore(t)
	news, err := s.take(web, "sent", good("1", 1))
	s.refuse(web, "malformed")
	if news || err != nil || s.remove(web) || len(s.list()) != 0 || s.bytes != 0 {
		t.Errorf("%t, %v, %+v, %d bytes", news, err, s.list(), s.bytes)
	}
}

func TestFullShelfRefusesFurtherNames(t *testing.T) {
	s, _, stop := onStore(t, web, other)
	if _, err := s.Watch(secret.Caller{}, "kubernetes://third", func(string) {}); err == nil {
		t.Error("a third name is watched")
	}
	if _, err := s.Peek(secret.Caller{}, "kubernetes://third"); !errors.Is(err, xds.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	stop()
	stop()
	if _, err := s.Watch(secret.Caller{}, "kubernetes://third", func(string) {}); err == nil {
		t.Error("the second makes room before its time")
	}
}

func TestOnlyKubernetesNamesAreValid(t *testing.T) {
	long := strings.Repeat("n", 253)
	for name, want := range map[string]bool{
		"kubernetes://web": true, "kubernetes://ns/web": true, "kubernetes-gateway://ns/web": true, "configmap://ns/web": true,
		"kubernetes-gateway://web": false, "configmap://web": false, "secret://ns/web": false,
		"kubernetes://az09-.x": true, "kubernetes://-x": false, "kubernetes://x-": false, "kubernetes://.x": false, "kubernetes://x.": false,
		"kubernetes://{": false, "kubernetes://`": false, "kubernetes:///x": false, "kubernetes://x/": false, "kubernetes://A": false, "kubernetes://:": false,
		"kubernetes://ü": false, "kubernetes://x_y": false, "kubernetes://x y": false, "kubernetes://a/b/c": false, "kubernetes://ns/X": false, "kubernetes://NS/x": false,
		"kubernetes://" + long + "-cacert": true, "kubernetes://" + long + "n-cacert": false, "kubernetes://ns/" + long + "-cacert": true, "kubernetes://ns/" + long + "n-cacert": false,
	} {
		if got := valid(name); got != want {
			t.Errorf("%.40s: got %t", name, got)
		}
	}
}
