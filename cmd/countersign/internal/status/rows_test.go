package status

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// manySecrets is an agent of n secrets on edge-1, of which the last one is not held and the one
// before ends first.
func manySecrets(n int) Report {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := Report{At: now, Machine: overview.Machine{Host: "edge-1"}}
	for i := range n {
		r.Secrets = append(r.Secrets, secret.Status{Name: fmt.Sprintf("web-%03d", i), Kind: "key-pair", Held: true, Item: &secret.Item{
			Kind: secret.KeyPair, Serial: "0123456789abcdef", Fingerprint: strings.Repeat("ab", 32), NotBefore: now, Issued: now, NotAfter: now.Add(time.Duration(2*n-i) * time.Minute),
		}})
	}
	failure := &secret.Failure{Reason: "denied", Text: "policy forbids it", At: now}
	r.Secrets[n-1] = secret.Status{Name: "a b&c", Kind: "key-pair", Failure: failure, Authorities: []string{"vault"}}
	r.Errors = []Error{{At: now, Count: 1, Where: "secret a b&c", Reason: "denied", Text: failure.Text, Do: "Allow it.", Now: true}}
	return r
}

func withID(t *testing.T, doc *html.Node, id string) *html.Node {
	t.Helper()
	for _, n := range elements(doc, "") {
		if attr(n, "id") == id {
			return n
		}
	}
	t.Fatalf("there is no element %q", id)
	return nil
}

func TestPageOfManySecretsBeginsWithItsProblems(t *testing.T) {
	answer, doc := open(t, manySecrets(500))
	if size := answer.Body.Len(); size > 160<<10 {
		t.Errorf("a refresh has %d bytes", size)
	}
	if got := text(elements(doc, "title")[0]); got != "edge-1: 499 of 500 secrets held. – Countersign" {
		t.Errorf("the title is %q", got)
	}
	shown := text(doc)
	for _, later := range []string{"web-000", "Last errors"} {
		if at := strings.Index(shown, "policy forbids it"); at < 0 || at > strings.Index(shown, later) {
			t.Errorf("%q comes before the error", later)
		}
	}
	links := elements(withID(t, doc, "problems"), "a")
	if len(links) != 1 || text(links[0]) != "a b&c" || attr(links[0], "href") != "?secret="+url.QueryEscape("a b&c") {
		t.Errorf("there are %d links", len(links))
	}
	rows := elements(withID(t, doc, "secret-list"), "li")
	if len(rows) != 500 || !strings.HasPrefix(text(rows[0]), "a b&c not held: requests are failing (denied)") || !strings.HasPrefix(text(rows[1]), "web-498 held until ") {
		t.Errorf("%d rows, the first is %q, the second %q", len(rows), text(rows[0]), text(rows[1]))
	}
}

func TestRowsAreBounded(t *testing.T) {
	answer, doc := open(t, manySecrets(10000))
	rows := elements(withID(t, doc, "secret-list"), "li")
	if len(rows) != maxRows+1 || !strings.HasPrefix(text(rows[0]), "a b&c") || !strings.HasPrefix(text(rows[maxRows]), "9000 more secrets") {
		t.Errorf("there are %d rows in %d bytes", len(rows), answer.Body.Len())
	}
	if _, doc := openAt(t, manySecrets(10000), "/?secret=web-000"); !strings.Contains(text(withID(t, doc, "opened")), "Serial") {
		t.Error("a secret without a row cannot be opened")
	}
}

func TestRowOpensTheDetailsOfItsSecret(t *testing.T) {
	r := manySecrets(13)
	r.Secrets[3].Kind, r.Secrets[3].Roots = "trust-bundle", []secret.Root{{Subject: "CN=root"}}
	_, doc := openAt(t, r, "/?secret=web-003")
	if got := text(withID(t, doc, "opened")); !strings.Contains(got, "0123456789abcdef") || !strings.Contains(got, "CN=root") {
		t.Errorf("got %q", got)
	}
	_, doc = openAt(t, r, "/?secret="+url.QueryEscape("a b&c"))
	if got := text(withID(t, doc, "opened")); !strings.Contains(got, "vault") {
		t.Errorf("got %q", got)
	}
	_, doc = openAt(t, r, "/?secret=<script>")
	if got := text(withID(t, doc, "opened")); !strings.Contains(got, "No secret has the requested name.") || strings.Contains(got, "<script>") {
		t.Errorf("got %q", got)
	}
}

// While a request is in flight, the time of the next attempt is that of this one.
func TestNextAttemptIsInTheFuture(t *testing.T) {
	r := manySecrets(3)
	for next, want := range map[time.Duration]bool{time.Minute: true, -time.Minute: false} {
		r.Secrets[2].Failure.NextTry = r.At.Add(next)
		if _, doc := open(t, r); strings.Contains(text(doc), "next attempt") != want {
			t.Errorf("the next attempt is in %s, and shown: %t", next, !want)
		}
	}
}

func TestFewSecretsAreShownInFull(t *testing.T) {
	r := manySecrets(maxCards)
	_, doc := open(t, r)
	cards := elements(withID(t, doc, "secret-list"), "article")
	if len(cards) != maxCards || text(elements(cards[0], "h3")[0]) != "a b&c" || text(elements(cards[1], "h3")[0]) != "web-000" {
		t.Fatalf("there are %d cards", len(cards))
	}
	link := elements(withID(t, doc, "problems"), "a")[0]
	if got := withID(t, doc, strings.TrimPrefix(attr(link, "href"), "#")); got != cards[0] {
		t.Error("the link does not lead to the card")
	}
}

func TestSecretsWithProblemsAreBounded(t *testing.T) {
	r := manySecrets(100)
	for i := range r.Secrets {
		r.Secrets[i].Held, r.Secrets[i].Item = false, nil
	}
	_, doc := open(t, r)
	rows := elements(withID(t, doc, "problems"), "li")
	if len(rows) != maxList+1 || strings.TrimSpace(text(rows[maxList])) != "80 more secrets" {
		t.Errorf("there are %d, the last is %q", len(rows), text(rows[len(rows)-1]))
	}
}

// When a CA is away, hundreds of secrets fail with one sentence.
func TestErrorsThatReadTheSameAreShownOnce(t *testing.T) {
	r := manySecrets(50)
	for _, name := range []string{"b", "c"} {
		e := r.Errors[0]
		e.Where, e.Count = "secret "+name, 2
		r.Errors = append(r.Errors, e)
	}
	other := r.Errors[0]
	other.Text, other.Where = "policy forbids that", "secret d"
	r.Errors = append(r.Errors, other)
	_, doc := open(t, r)
	cards := elements(withID(t, doc, "problems"), "article")
	if len(cards) != 2 || !strings.Contains(text(cards[0]), "secret a b&c and 2 more: denied") || !strings.Contains(text(cards[0]), "5 times") || !strings.Contains(text(cards[1]), "secret d: denied") {
		t.Errorf("there are %d cards: %q", len(cards), text(cards[0]))
	}
}
