package top

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

// hostile is what no agent may do to the terminal.
const hostile = "\x1b]0;title\x07\x1b[2J\u009b2J\u202e\x00\r\nx\u200b\xff"

func unpainted(_ cli.Color, text string) string { return text }

// hostileReport has a text wherever one is.
func hostileReport(text string) report {
	now := time.Now()
	r := report{At: now, NotReady: text, Restart: []string{text}}
	r.Build.Version, r.Machine.Host, r.Machine.Started, r.Configuration.Refused = text, text, now, text
	s := secret{Name: text, Kind: text, Rotations: -1, Roots: []root{{Fingerprint: text, Subject: text, KeptUntil: now}}}
	s.Item.Serial, s.Item.Authority, s.Item.Root, s.Failure.Reason, s.Held = text, text, text, text, true
	r.Secrets, r.Providers = []secret{s}, []provider{{Name: text, State: text, Version: text, LastError: text}}
	o := output{Name: text, State: text}
	o.Failure.Text = text
	r.Outputs, r.Streams, r.Server.Streams = []output{o}, []stream{{Caller: text, Node: text}}, []stream{{Identity: text, Node: text}}
	r.Authorities = []authority{{Name: text, Oldest: 1e300, Held: -1}}
	r.JWTSVIDs = &tokens{Provider: text, State: text, Keys: []string{text}, Failure: tokenFailure{text, text, now}, Watch: tokenFailure{text, text, now}}
	r.OnDemand.Rules = []rule{{Name: text, Late: 1, Refused: map[string]int{text: 1}, Next: []expiry{{text, now, true}}}}
	r.Errors = []fault{{At: now, Where: text, Reason: text, Text: text}}
	return r
}

func viewOf(reports ...report) *view {
	v := newView([]*source{{address: hostile}})
	for _, r := range reports {
		v.take(0, answer{at: time.Now(), report: r})
	}
	return v
}

func TestForeignTextIsEscapedAndFits(t *testing.T) {
	long := hostileReport(hostile + strings.Repeat("ab漢", 1000))
	long.Secrets[0].Name += "x"
	v := viewOf(hostileReport(hostile), long)
	v.take(0, answer{at: time.Now(), err: &json.SyntaxError{}})
	for _, width := range []int{1, 2, 20, 80, 1000} {
		for _, l := range v.lines(width, time.Now(), unpainted) {
			if cli.Columns(l) > width {
				t.Errorf("%d columns of %d: %q", cli.Columns(l), width, l)
			}
			for _, r := range l {
				if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
					t.Fatalf("%q is in %q", r, l)
				}
			}
		}
	}
}

func TestRowsAreBounded(t *testing.T) {
	r := report{Secrets: make([]secret, 5*maxRows)}
	lines := viewOf(r).lines(80, time.Now(), unpainted)
	if len(lines) > maxRows+10 || !strings.Contains(strings.Join(lines, "\n"), "and 4000 more") {
		t.Errorf("there are %d lines", len(lines))
	}
	v := viewOf()
	for range 3 * maxEvents {
		v.take(0, answer{err: errNotThere})
		v.take(0, answer{})
	}
	if len(v.events) != maxEvents {
		t.Errorf("there are %d events", len(v.events))
	}
}

func parsed(t *testing.T, text string) (r report) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRotationOfRootsIsShown(t *testing.T) {
	const old = `{"fingerprint":"aaaa","subject":"CN=old"}`
	before := parsed(t, `{"secrets":[{"name":"default","held":true,"rotations":1,"item":{"serial":"01","root_fingerprint":"aaaa"}},{"name":"ROOTCA","held":true,"roots":[`+old+`]}]}`)
	both := parsed(t, `{"secrets":[{"name":"default","held":true,"rotations":1,"item":{"serial":"01","root_fingerprint":"aaaa"}},{"name":"ROOTCA","held":true,"roots":[`+old+`,{"fingerprint":"bbbb","subject":"CN=new"}]}]}`)
	after := parsed(t, `{"secrets":[{"name":"default","held":true,"rotations":2,"item":{"serial":"02","root_fingerprint":"bbbb"}},{"name":"ROOTCA","held":true,"roots":[{"fingerprint":"aaaa","kept_until":"2030-01-01T00:00:00Z"},{"fingerprint":"bbbb"}]}]}`)
	end := parsed(t, `{"secrets":[{"name":"default","held":false,"rotations":2,"item":{"serial":"02","root_fingerprint":"bbbb"}},{"name":"ROOTCA","held":true,"roots":[{"fingerprint":"bbbb"}]}],
		"errors":[{"at":"2026-01-01T00:00:00Z","where":"secret default","reason":"denied","text":"no"}]}`)
	v := viewOf(before, both, both, after, end, end)
	var got []string
	for _, e := range v.events {
		got = append(got, e.text)
	}
	want := []string{
		"ROOTCA: root bbbb was added, CN=new", "secret default rotated, serial 02, root bbbb", "ROOTCA: root aaaa was dropped by its CA, and is kept for a while",
		"secret default: not held, was held", "ROOTCA: root aaaa was removed, ", "secret default: denied: no",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q", got)
	}
}

func TestTokensAreShown(t *testing.T) {
	for key, kind := range map[string]string{"jwt_svids": "JWT-SVIDs", "wit_svids": "WIT-SVIDs"} {
		v := viewOf(
			parsed(t, `{"`+key+`":{"provider":"corporate","state":"waiting","keys":[]}}`),
			parsed(t, `{"`+key+`":{"provider":"corporate","state":"offered","keys":["a"],"held":4,"signed":12345}}`),
			parsed(t, `{"`+key+`":{"provider":"corporate","state":"failing","keys":["a"],"failing":true,"failure":{"reason":"denied","text":"no","at":"2026-01-01T00:00:00Z"}}}`),
		)
		var got []string
		for _, e := range v.events {
			got = append(got, fmt.Sprint(e.text, " ", e.well))
		}
		want := []string{
			kind + ": offered, was waiting true", kind + ": 1 keys, were 0 true", kind + ": failing, was offered false", kind + ": denied: no false",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q", got)
		}
		shown := strings.Join(v.lines(200, time.Now(), unpainted), "\n")
		for _, want := range []string{strings.ToUpper(kind) + " BY", "corporate", "denied: no"} {
			if !strings.Contains(shown, want) {
				t.Errorf("%q is not in %s", want, shown)
			}
		}
	}
}

// manySecrets is an agent of 500 secrets, of which one is not held and another ends soon.
func manySecrets() (r report) {
	for i := range 500 {
		s := secret{Name: fmt.Sprintf("spiffe://example.org/ns/shop/sa/web-%03d", i), Held: true, Rotations: 12}
		s.Item.Serial, s.Item.Root, s.Item.Authority = "0123456789ab", "ba9876543210", "corporate-vault"
		s.Item.NotAfter, s.Item.RenewAt = time.Now().Add(48*time.Hour), time.Now().Add(24*time.Hour)
		r.Secrets = append(r.Secrets, s)
	}
	r.Secrets[300].Item.NotAfter = time.Now().Add(time.Hour)
	r.Secrets[400].Held, r.Secrets[400].Failure.Reason = false, "unauthenticated"
	r.Secrets[450].Failure.Reason = "unavailable"
	return r
}

func TestSecretsThatAreNotHeldComeFirst(t *testing.T) {
	v := viewOf(manySecrets())
	for i, want := range []string{"web-400", "web-450", "web-300", "web-000"} {
		if got := v.sorted()[i].Name; !strings.HasSuffix(got, want) {
			t.Errorf("row %d is %s, want %s", i, got, want)
		}
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	v := newView([]*source{{address: "unix:/run/countersign/status"}})
	v.take(0, answer{at: time.Now(), report: manySecrets()})
	lines := v.secrets(time.Now()).lines(80, unpainted)
	for _, want := range []string{"STATE", "LEFT", "RENEWS", "FAILURE"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("the column %s is not in %q", want, lines[0])
		}
	}
	if got := lines[1]; !strings.HasPrefix(got, "spiffe:") || !strings.Contains(got, "/web-400  ") || !strings.Contains(got, "not held") || !strings.Contains(got, "unauthentic") {
		t.Errorf("the row is %q", got)
	}
	for _, line := range lines {
		if cli.Columns(line) > 80 {
			t.Errorf("%d columns: %q", cli.Columns(line), line)
		}
	}
	if wide := v.secrets(time.Now()).lines(200, unpainted)[0]; !strings.Contains(wide, "AGENT") || !strings.Contains(wide, "SERIAL") {
		t.Errorf("200 columns have %q", wide)
	}
}

func TestHeadlineOfTheAgentIsShown(t *testing.T) {
	const words = "499 of 500 secrets held. The changed configuration was refused."
	r := parsed(t, `{"headline":{"words":"`+words+`","grade":"fair"},"build":{"version":"v0.1.0"},"machine":{"host":"a-machine-with-a-name"}}`)
	if _, color := r.summary(); color != cli.Yellow {
		t.Errorf("it has the color %d", color)
	}
	v := newView([]*source{{address: "unix:./status"}})
	v.take(0, answer{at: time.Now(), report: r})
	if got := v.lines(80, time.Now(), unpainted)[1]; !strings.HasSuffix(got, words) {
		t.Errorf("the line is %q", got)
	}
	service := parsed(t, `{"configuration":{"refused":"ttl: write 1s or more"},"providers":[{"state":"ready"},{"state":"refused"}]}`)
	if got, color := service.summary(); got != "Ready. 1 of 2 providers ready. The changed configuration was refused." || color != cli.Yellow {
		t.Errorf("a service: %q, %d", got, color)
	}
}

func TestAgentThatIsAwayKeepsItsLastState(t *testing.T) {
	v := viewOf(parsed(t, `{"secrets":[{"name":"default","held":true}]}`))
	v.take(0, answer{at: time.Now(), err: errNotThere})
	v.take(0, answer{at: time.Now(), err: errNotThere})
	shown := strings.Join(v.lines(200, time.Now(), unpainted), "\n")
	if !strings.Contains(shown, "away for 0s: it has no status") || !strings.Contains(shown, "default") || strings.Count(shown, "does not answer") != 1 {
		t.Error(shown)
	}
	v.take(0, answer{at: time.Now()})
	if shown := strings.Join(v.lines(200, time.Now(), unpainted), "\n"); !strings.Contains(shown, "answers again") {
		t.Error(shown)
	}
}

func TestKeysScrollAndQuit(t *testing.T) {
	s := screen{height: 12, most: 100}
	for _, c := range []struct {
		keys string
		top  int
	}{{"\x1b[Bj", 2}, {"\x1b[6~", 12}, {"\x1b[5~\x1b[A", 1}, {"G", 100}, {"\x1b[B", 100}, {"g", 0}, {"k", 0}, {"\x1b", 0}, {"\x1b[999", 0}, {"é", 0}} {
		if s.press(c.keys) || s.top != c.top {
			t.Errorf("%q leads to %d", c.keys, s.top)
		}
	}
	for _, keys := range []string{"q", "\x03", "xyzq"} {
		if !s.press(keys) {
			t.Errorf("%q does not quit", keys)
		}
	}
}

func TestPendingRequestIsAStateOfItsOwn(t *testing.T) {
	var s secret
	if err := json.Unmarshal([]byte(`{"held": true, "pending": {"reason": "pending", "text": "approve it"}}`), &s); err != nil {
		t.Fatal(err)
	}
	if words, well := s.state(); words != "held, renewal pending at the CA" || !well {
		t.Errorf("%s, well: %t", words, well)
	}
	s.Held = false
	if words, well := s.state(); words != "not held, pending at the CA" || well {
		t.Errorf("%s, well: %t", words, well)
	}
}

// Columns that say less go first.
func TestNamesAndErrorsFit80Columns(t *testing.T) {
	r := report{At: time.Now()}
	name := "shop-044.example.org"
	r.Secrets = []secret{{Name: name, Held: true, Kind: "key-pair"}}
	r.Secrets[0].Failure.Reason, r.Secrets[0].Item.Root, r.Secrets[0].Item.NotAfter, r.Secrets[0].Item.RenewAt = "unavailable", strings.Repeat("0e", 32), r.At.Add(24*time.Hour), r.At.Add(-10*time.Hour)
	const failed = "it ended with exit code 1: vault.example"
	r.Providers = []provider{{Name: "vault", State: "backoff", Version: "0.1.0", LastError: failed + ".org: no route to host"}}
	v := newView([]*source{{address: "unix:/run/countersign/status"}})
	v.take(0, answer{at: time.Now(), report: r})
	for _, want := range []string{name, failed} {
		if shown := strings.Join(v.lines(80, r.At, unpainted), "\n"); !strings.Contains(shown, want) {
			t.Errorf("%q is not in\n%s", want, shown)
		}
	}
}
