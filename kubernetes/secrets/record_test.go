package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// book is a record with its log and a clock that a test sets.
type book struct {
	*record
	log  bytes.Buffer
	time time.Time
}

func newBook() *book {
	b := &book{time: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}
	b.record = newRecord(slog.New(slog.NewTextHandler(&b.log, nil)), func() time.Time { return b.time })
	return b
}

// lines returns the lines of log since it was asked last.
func (b *book) lines() []string {
	text := strings.TrimSuffix(b.log.String(), "\n")
	b.log.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// What differs in one word is another thing, and the same again is none.
func TestRefusalIsLoggedOnceAndCountedEachTime(t *testing.T) {
	b := newBook()
	web := caller("east", "shop", "web")
	for i, each := range []struct {
		caller *discovery.Caller
		name   string
		reason Reason
	}{
		{web, "foo", Missing}, {web, "bar", Missing}, {web, "foo", NoRight},
		{caller("west", "shop", "web"), "foo", Missing}, {caller("east", "shop", "api"), "foo", Missing}, {nil, "foo", Missing},
	} {
		for range 2 {
			b.refuses(each.caller, each.name, &refusal{each.reason, "why"})
		}
		if lines := b.lines(); len(lines) != 1 || !strings.Contains(lines[0], "reason="+string(each.reason)) {
			t.Errorf("%d: %q", i, lines)
		}
	}
	b.refuses(web, "baz", &refusal{Missing, "why"})
	if lines := b.lines(); !strings.Contains(lines[0], "cluster=east") || !strings.Contains(lines[0], "caller=spiffe://cluster.local/ns/shop/sa/web") {
		t.Errorf("%q", lines)
	}
	b.refuses(web, "foo", &refusal{Malformed, "why"}) // which remarks tells, of the object
	if lines := b.lines(); len(lines) != 0 {
		t.Errorf("%q", lines)
	}
	if b.refused[Missing] != 11 || b.refused[NoRight] != 2 || b.refused[Malformed] != 1 {
		t.Errorf("counted %v", b.refused)
	}
}

func TestEachObjectVersionIsRemarkedOnce(t *testing.T) {
	b := newBook()
	at := func(cluster, namespace, name, stamp string) object {
		return object{place: place{cluster: cluster, namespace: namespace, name: name}, stamp: stamp}
	}
	objects := []object{
		at("east", "shop", "foo", "1"), at("west", "shop", "foo", "1"), at("east", "bank", "foo", "1"), at("east", "shop", "bar", "1"),
		at("east", "shopf", "oo", "1"),
	}
	broken := func(why string) product { return product{err: errors.New(why)} }
	ended := func(version string) product {
		return product{resource: &xds.Resource{Version: version}, lifetime: lifetime{ends: b.time}}
	}
	said := func(o object, p product) {
		t.Helper()
		b.remarks(o, p)
		b.remarks(o, p)
		if lines := b.lines(); len(lines) != 1 || !strings.Contains(lines[0], "namespace="+o.namespace+" name="+o.name) {
			t.Errorf("%+v: %q", o.place, lines)
		}
	}
	for _, o := range objects {
		said(o, broken("no PEM"))
		said(o, ended("v1"))
	}
	said(at("east", "shop", "foo", "2"), broken("no PEM"))
	said(objects[0], broken("no key"))
	said(objects[0], ended("v2"))
	b.remarks(objects[0], product{resource: &xds.Resource{Version: "v3"}, lifetime: lifetime{ends: b.time.Add(1)}})
	b.remarks(at("east", "shop", "foo", "3"), ended("v2")) // the same content
	if lines := b.lines(); len(lines) != 0 || b.malformed != 7 || b.expired != 6 {
		t.Errorf("%q; %d are malformed, %d have expired", lines, b.malformed, b.expired)
	}
}

func TestLogLinesAreLimitedPerMinute(t *testing.T) {
	b := newBook()
	n := 0
	flood := func(refusals int) (lines []string) {
		for range refusals {
			n++
			b.refuses(nil, fmt.Sprint(n), &refusal{Missing, "why"})
		}
		return b.lines()
	}
	if lines := flood(maxLines/2 + 7); len(lines) != maxLines/2 || !strings.HasSuffix(lines[0], "suppressed=0") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	b.remarks(object{}, product{err: errors.New("the other half is for these")})
	if lines := b.lines(); len(lines) != 1 || !strings.HasSuffix(lines[0], "suppressed=7") {
		t.Errorf("%q", lines)
	}
	b.time = b.time.Add(time.Minute - 1)
	if lines := flood(3); len(lines) != 0 {
		t.Errorf("in the same minute: %q", lines)
	}
	b.time = b.time.Add(1)
	if lines := flood(maxLines); len(lines) != maxLines/2 || !strings.HasSuffix(lines[0], "suppressed=3") || !strings.HasSuffix(lines[1], "suppressed=0") {
		t.Errorf("in the next minute: %d, %q", len(lines), lines)
	}
	b.time = b.time.Add(-time.Hour) // the clock was set
	if lines := flood(1); len(lines) != 1 {
		t.Errorf("after the clock was set back: %q", lines)
	}
}

func TestRemarksAreBounded(t *testing.T) {
	b := newBook()
	for i := range maxRemarks + 10 {
		if !b.first(fmt.Sprint(i)) {
			t.Errorf("%d was not seen before", i)
		}
	}
	if len(b.known) != maxRemarks {
		t.Errorf("%d are remembered", len(b.known))
	}
}

// What is just within the bounds is served.
func TestMaximumSizesAreServed(t *testing.T) {
	a := of("a")
	padded := func(text []byte, size int) []byte {
		return append(slices.Clone(text), bytes.Repeat([]byte("\n"), size-len(text))...)
	}
	long := staple(0)
	for length := maxStaple - 64; len(long) != maxStaple; length++ {
		long = stapleOf(0, make([]byte, length))
	}
	s := newScene(t, nil)
	s.at("home").put("shop/foo", data{
		"tls.crt": bytes.Repeat(a.cert, maxChain), "tls.key": padded(a.key, maxKey), "tls.ocsp-staple": long, "ca.crt": a.cert, "ca.crl": padded(crlOf("a"), maxCRL),
	})
	for _, name := range []string{"kubernetes://foo", "kubernetes://foo-cacert"} {
		s.secret(t, caller("home", "shop", "web"), name)
	}
}
