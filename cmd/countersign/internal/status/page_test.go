package status

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/net/html"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// hostile is what no foreign text may do to the page.
var hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>'` + "\u202e\u2066\x1b[2J\x00\xff</title></style>{{.}}" + strings.Repeat("0123456789", 1000)

const key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n"

// hostileReport has it wherever foreign text comes in.
func hostileReport() Report {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	id := pki.Identity{DNSNames: []string{hostile}, IPAddresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	item := &secret.Item{
		Name: hostile, Kind: secret.KeyPair, Version: hostile, Key: []byte(key), Chain: []byte(hostile), Identity: id, Serial: hostile, Fingerprint: hostile,
		NotBefore: now.Add(-time.Hour), Issued: now.Add(-time.Hour), RenewAt: now.Add(time.Hour), NotAfter: now.Add(2 * time.Hour),
		Authority: hostile, Signer: hostile, RootFingerprint: hostile,
	}
	bundle := &secret.Item{Name: hostile, Kind: secret.TrustBundle, Roots: []byte(hostile), NotBefore: now, NotAfter: now.Add(time.Hour), Authority: hostile}
	failure := &secret.Failure{Reason: hostile, Text: hostile, At: now, NextTry: now.Add(time.Minute)}
	root := secret.Root{Fingerprint: hostile, Subject: hostile, NotAfter: now.Add(time.Hour), Authorities: slices.Repeat([]string{hostile}, 50), KeptUntil: now.Add(time.Minute)}
	return Report{
		Machine: overview.Machine{Host: hostile, PID: 7, Started: now, Config: hostile, Socket: hostile, Gateway: hostile},
		Restart: slices.Repeat([]string{hostile}, 50), State: &State{Dir: hostile, Failing: hostile, Since: now},
		Outputs: slices.Repeat([]Output{{Name: hostile, Folder: hostile, Tells: hostile, State: outputNotTold, Failure: &OutputFailure{Text: hostile, At: now}}}, 300),
		Ends:    map[string]Term{hostile: {clean(hostile), now, now.Add(time.Hour)}},
		At:      now, Build: buildinfo.Info{Version: hostile, Revision: hostile, Go: hostile, Platform: hostile}, Streams: 99,
		Secrets: []secret.Status{
			{Name: hostile, Kind: hostile, Authorities: []string{hostile}, Held: true, Item: item, Asked: hostile, Failure: failure, Advice: &secret.Advice{WindowStart: now, WindowEnd: now.Add(time.Hour), Explanation: hostile}},
			{Name: hostile, Kind: hostile, Authorities: []string{hostile}, Held: true, Item: bundle, Roots: slices.Repeat([]secret.Root{root}, 300)},
			{Name: hostile, Kind: hostile, Authorities: []string{hostile}, Asked: hostile},
		},
		Providers: []overview.Provider{{
			Name: hostile, Provider: hostile, Version: hostile, Abilities: []string{hostile}, Facts: []string{hostile}, State: "backoff", Path: hostile, SHA256: hostile, PID: 7,
			LastReload: hostile, LastSecret: hostile, Authentication: hostile, LastError: hostile, NextStart: now.Add(time.Minute),
		}},
		Workloads: &identities.Counts{Identities: 3, Failure: failure, NextRenewal: now.Add(time.Minute), NextExpiry: now.Add(time.Hour)},
		Gateway: &gateway.Status{Address: hostile, Since: now, Credential: hostile, Failure: failure, Names: slices.Repeat([]gateway.Name{
			{Name: hostile, State: hostile, Version: hostile, Since: now, NotAfter: now, Refused: hostile},
		}, 300)},
		JWTSVIDs: JWTSVIDsOf(hostile, slices.Repeat([]string{hostile}, 50), jwtsvid.Status{
			Keys: slices.Repeat([]string{hostile}, 50), KeysAt: now, Failing: true,
			Failure: &jwtsvid.Failure{Reason: hostile, Text: hostile, At: now}, KeysFailure: &jwtsvid.Failure{Reason: hostile, Text: hostile, At: now, NextTry: now.Add(time.Minute)},
		}),
		OpenStreams: []Stream{{ID: 1, Caller: hostile, Node: hostile, Since: now}},
		Errors:      []Error{{At: now, Count: 2, Where: hostile, Reason: hostile, Text: hostile, Does: "a", Do: "b", Now: true}},
	}
}

// open returns the page as it is served, and parsed.
func open(t *testing.T, r Report) (*httptest.ResponseRecorder, *html.Node) {
	t.Helper()
	return openAt(t, r, "/")
}

func openAt(t *testing.T, r Report, path string) (*httptest.ResponseRecorder, *html.Node) {
	t.Helper()
	answer := httptest.NewRecorder()
	Page(func() Report { return r }).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	doc, err := html.Parse(strings.NewReader(answer.Body.String()))
	if err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d, %v\n%s", answer.Code, err, answer.Body)
	}
	return answer, doc
}

// elements returns those of a name; of "" all.
func elements(doc *html.Node, name string) (found []*html.Node) {
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && (name == "" || n.Data == name) {
			found = append(found, n)
		}
	}
	return found
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var out strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			out.WriteString(d.Data)
		}
	}
	return out.String()
}

func TestForeignTextIsEscapedAndBounded(t *testing.T) {
	answer, doc := open(t, hostileReport())
	if n := answer.Body.Len(); n > 1<<20 {
		t.Errorf("the page has %d bytes", n)
	}
	if len(elements(doc, "script")) != 1 || len(elements(doc, "style")) != 1 || len(elements(doc, "img")) != 0 {
		t.Error("there are elements that are not the page's")
	}
	for n := range doc.Descendants() {
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" || a.Key == "href" && !leadsToOwnPage(doc, a.Val) {
				t.Errorf("<%s %s=%.80q>", n.Data, a.Key, a.Val)
			}
			mustBePlain(t, a.Val)
		}
		if n.Type == html.TextNode && n.Parent.Data != "script" && n.Parent.Data != "style" {
			mustBePlain(t, n.Data)
		}
	}
	shown := text(doc)
	if !strings.Contains(shown, `"><script>alert(1)</script>`) || !strings.Contains(shown, `\u202e\u2066\x1b[2J\x00\xff`) {
		t.Error("what was written is not shown")
	}
}

// leadsToOwnPage reports whether a link leads to an element of the page, or another page of the agent.
func leadsToOwnPage(doc *html.Node, href string) bool {
	if id, ok := strings.CutPrefix(href, "#"); ok {
		return slices.ContainsFunc(elements(doc, ""), func(n *html.Node) bool { return attr(n, "id") == id })
	}
	return slices.Contains([]string{"data:,", "/", "/status", "/metrics", "/readyz"}, href) || strings.HasPrefix(href, "?secret=")
}

func mustBePlain(t *testing.T, text string) {
	t.Helper()
	if len(text) > maxList*(256+2)+2*256 { // the title has the machine and what is behind
		t.Errorf("%d bytes: %.80q", len(text), text)
	}
	for _, r := range text {
		if !unicode.IsPrint(r) && r != '\n' {
			t.Errorf("%q is in %.80q", r, text)
			return
		}
	}
}

func TestPageShowsTokenExpiry(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for want, end := range map[string]time.Time{
		"until 12:10:00 (in 10 min)": now.Add(10 * time.Minute), "expired 11:50:00 (10 min ago)": now.Add(-10 * time.Minute), "": {},
	} {
		_, doc := open(t, Report{At: now, Secrets: []secret.Status{{Name: "default", TokenExpiry: end}}})
		got := strings.Join(strings.Fields(text(doc)), " ")
		if !strings.Contains(got, want) || strings.Contains(got, "Token for the next") != !end.IsZero() {
			t.Errorf("%q is not in %s", want, got)
		}
	}
}

func TestPageShowsNoKey(t *testing.T) {
	if answer, _ := open(t, hostileReport()); strings.Contains(answer.Body.String(), "MIGHAgEAMBMG") || strings.Contains(answer.Body.String(), "PRIVATE KEY") {
		t.Error("there is")
	}
}

func TestPageMarksRestoredSecrets(t *testing.T) {
	for restored, want := range map[bool]int{true: 2, false: 0} {
		r := Report{At: time.Now(), Secrets: []secret.Status{
			{Name: "default", Kind: "key-pair", Restored: restored},
			{Name: "ROOTCA", Kind: "trust-bundle", Roots: []secret.Root{{Subject: "CN=root", KeptUntil: time.Now(), Restored: restored}}},
		}}
		answer, _ := open(t, r)
		if n := strings.Count(answer.Body.String(), "from the last run"); n != want {
			t.Errorf("restored is %v, and the page shows it %d times", restored, n)
		}
	}
}

func TestContentSecurityPolicyAllowsOnlyOwnPage(t *testing.T) {
	answer, doc := open(t, hostileReport())
	got := answer.Header().Get("Content-Security-Policy")
	for _, unsafe := range []string{"unsafe", "http:", "https:", "*"} {
		if strings.Contains(got, unsafe) {
			t.Errorf("the policy has %q: %s", unsafe, got)
		}
	}
	for _, own := range []string{"script", "style"} {
		sum := sha256.Sum256([]byte(text(elements(doc, own)[0])))
		if want := own + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(got, want) {
			t.Errorf("the policy has no %s: %s", want, got)
		}
	}
	for _, want := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(got, want) {
			t.Errorf("the policy has no %s: %s", want, got)
		}
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
		if got := answer.Header().Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func TestPageIsAccessible(t *testing.T) {
	_, doc := open(t, hostileReport())
	if attr(elements(doc, "html")[0], "lang") != "en" || len(elements(doc, "main")) != 1 || len(elements(doc, "h1")) != 1 {
		t.Error("no language, or no single main part and title")
	}
	ids := map[string]bool{}
	for _, n := range elements(doc, "") {
		if id := attr(n, "id"); id != "" && ids[id] {
			t.Errorf("the id %q is there twice", id)
		} else {
			ids[id] = true
		}
	}
	before := 0
	for _, n := range elements(doc, "") {
		if len(n.Data) != 2 || n.Data[0] != 'h' || n.Data[1] < '1' || n.Data[1] > '6' {
			continue
		}
		if level := int(n.Data[1] - '0'); level > before+1 {
			t.Errorf("<%s> follows a heading of level %d", n.Data, before)
		} else {
			before = level
		}
	}
	for _, n := range elements(doc, "table") {
		if text(elements(n, "caption")[0]) == "" || attr(n.Parent, "tabindex") != "0" || attr(n.Parent, "aria-label") == "" {
			t.Error("a table has no caption, or cannot be scrolled by keyboard")
		}
	}
	for _, n := range elements(doc, "th") {
		if attr(n, "scope") == "" {
			t.Errorf("a heading of a table has no scope: %.80q", text(n))
		}
	}
	for _, n := range elements(doc, "section") {
		if !ids[attr(n, "aria-labelledby")] {
			t.Errorf("a section is named by %q, which is not there", attr(n, "aria-labelledby"))
		}
	}
	bars := elements(doc, "svg")
	if len(bars) != 2 {
		t.Fatalf("there are %d bars", len(bars))
	}
	if got := attr(bars[0], "aria-label"); attr(bars[0], "role") != "img" || got != "33 % of its lifetime is over; renewal in 1 h 0 min; expires in 2 h 0 min" {
		t.Errorf("the bar shows %q", got)
	}
}

func TestPageReloadsWithoutScript(t *testing.T) {
	_, doc := open(t, Report{})
	// html.Parse takes a reader's part, who has no script.
	if got := text(elements(doc, "noscript")[0]); got != `<meta http-equiv="refresh" content="15">` {
		t.Errorf("got %q", got)
	}
}

func TestEmptyAgentHasAPage(t *testing.T) {
	_, doc := open(t, Report{At: time.Now()})
	for _, want := range []string{"All secrets are held.", "No secret is configured.", "No provider is configured.", "None since the agent started."} {
		if !strings.Contains(text(doc), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
