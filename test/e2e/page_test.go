//go:build e2e

package e2e

import (
	"fmt"
	"image"
	"image/color"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// A root's name is what a CA that means harm could put on the page.
const hostileRoot = `<script>alert(1)</script><img src=x onerror="alert(1)">` + "\u202e"

// statusPage is an agent's page where a browser reaches it: it knows no unix sockets.
type statusPage struct {
	*agent
	address string
	loaded  atomic.Int64 // how often it was asked for
}

func startPage(t *testing.T, config agentConfig) *statusPage {
	t.Helper()
	p := &statusPage{agent: startAgent(t, config)}
	startWorkload(t, p.socket, "default").certificate()
	proxy := &httputil.ReverseProxy{Transport: p.status.Transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: "unix"})
		if r.In.URL.Path == "/" {
			p.loaded.Add(1)
		}
	}}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	p.address = server.URL + "/"
	return p
}

// changeRoot gives the CA another root, of a hostile name, and waits until the page
// tells that the one before stays for a while.
func (p *statusPage) changeRoot(t *testing.T) {
	t.Helper()
	print := pki.Fingerprint(writeCA(t, p.ca, hostileRoot))
	poll(t, "the new root", func() bool {
		text := getPage(t, p.status, "/")
		return strings.Contains(text, print) && strings.Contains(text, "dropped")
	})
}

// It is one test, as a browser takes its time to start.
func TestPageInRealBrowser(t *testing.T) {
	t.Parallel()
	needChromium(t)
	p, b := startPage(t, agentConfig{}), openBrowser(t)
	for _, c := range []struct {
		width         int
		scheme, media string
	}{{320, "light", "screen"}, {320, "dark", "screen"}, {1440, "light", "screen"}, {1440, "dark", "screen"}, {800, "light", "print"}} {
		t.Run(fmt.Sprintf("is read %d wide, %s, on %s", c.width, c.scheme, c.media), func(t *testing.T) {
			p.changeRoot(t)
			b.wide(t, c.width, c.scheme, c.media)
			b.open(t, p.address)
			mustShowTheAgent(t, eval[string](t, b, "document.body.innerText"))
			if wide := eval[int](t, b, "document.documentElement.scrollWidth"); wide > c.width {
				t.Errorf("the page is %d wide", wide)
			}
			mustBeAPicture(t, b.picture(t, fmt.Sprintf("page-%d-%s-%s.png", c.width, c.scheme, c.media)), c.width, c.scheme)
			b.mustBeCalm(t)
		})
	}
	b.wide(t, 320, "light", "screen")
	t.Run("is read by a screen reader", func(t *testing.T) { isReadAloud(t, b, p) })
	t.Run("is used by keyboard", func(t *testing.T) { isUsedByKeyboard(t, b, p) })
	t.Run("filters its rows", func(t *testing.T) { filtersItsRows(t, b) })
	t.Run("is read without a script", func(t *testing.T) { isReadWithoutAScript(t, b, p) })
	t.Run("keeps itself up to date", func(t *testing.T) { keepsItselfUpToDate(t, b, p) })
}

func mustShowTheAgent(t *testing.T, text string) {
	t.Helper()
	for _, want := range []string{
		"All secrets are held.", envoyID, clientID, "moody (provider moody ", "Renewal", "Expiry", "dropped until", "ready", "Restarts",
		`CN=\<script\>alert(1)\</script\>\<img src=x onerror=\"alert(1)\"\>\u202e`, "uid:", "None since the agent started.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, "\u202e") {
		t.Error("the page shows a key, or what turns text around")
	}
}

// mustBeAPicture wants one of that width with ink on paper of the right shade.
func mustBeAPicture(t *testing.T, img image.Image, width int, scheme string) {
	t.Helper()
	size := img.Bounds()
	if size.Dx() != width || size.Dy() < 900 {
		t.Errorf("the picture is %v", size)
	}
	paper := color.GrayModel.Convert(img.At(1, size.Dy()-2)).(color.Gray).Y
	if dark := paper < 128; dark != (scheme == "dark") {
		t.Errorf("%s paper has the shade %d", scheme, paper)
	}
	colours := map[color.Color]int{}
	points := 0
	for y := 0; y < size.Dy(); y += 3 { // looking at every point takes a second for each picture
		for x := 0; x < size.Dx(); x += 3 {
			colours[img.At(x, y)]++
			points++
		}
	}
	if most := slices.Max(slices.Collect(values(colours))); len(colours) < 30 || most > points*98/100 {
		t.Errorf("the picture has %d colours, one of them on %d of %d points", len(colours), most, points)
	}
}

func values(m map[color.Color]int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for _, n := range m {
			if !yield(n) {
				return
			}
		}
	}
}

// mustBeCalm wants no script run but the page's own, and nothing that its policy refused.
func (b *browser) mustBeCalm(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bad := range []string{"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening"} {
		for _, e := range b.happened(bad) {
			t.Errorf("%s: %s", bad, e.Params)
		}
	}
}

const serialOfDefault = `[...document.querySelectorAll("article")].find(a => a.querySelector("h3").textContent === "default").querySelector("code").textContent`

func keepsItselfUpToDate(t *testing.T, b *browser, p *statusPage) {
	b.open(t, p.address)
	before := eval[string](t, b, "window.same = true; "+serialOfDefault)
	poll(t, "the page to show the next certificate", func() bool { return eval[string](t, b, serialOfDefault) != before })
	if !eval[bool](t, b, "window.same === true") {
		t.Error("the page was loaded anew")
	}
	b.mustBeCalm(t)
	p.stop(t, syscall.SIGTERM)
	poll(t, "the page to say that the agent is gone", func() bool {
		return strings.HasPrefix(eval[string](t, b, `document.getElementById("stale").textContent`), "Nothing has answered since ")
	})
}

// rowsShown are the names of the rows that are not hidden.
const rowsShown = `[...document.querySelectorAll("[data-row]")].filter(r => r.offsetHeight > 0).map(r => r.querySelector("a").textContent).join(" ")`

// filtersItsRows types into the filter of an agent of many secrets. An update keeps what is typed.
func filtersItsRows(t *testing.T, b *browser) {
	var secrets []map[string]any
	for n := range 20 {
		secrets = append(secrets, map[string]any{"name": fmt.Sprintf("web-%02d", n), "dns_names": []string{"web.example.org"}, "ttl": "1h"})
	}
	p := startPage(t, agentConfig{secrets: secrets})
	b.open(t, p.address)
	eval[any](t, b, `document.getElementById("pattern").focus()`)
	for _, key := range "EB-07" {
		b.press(t, string(key), int(key), string(key))
	}
	if shown := eval[string](t, b, rowsShown); shown != "web-07" {
		t.Errorf("with %q typed, the rows are %s", "EB-07", shown)
	}
	before := p.loaded.Load()
	poll(t, "an update", func() bool { return p.loaded.Load() > before })
	poll(t, "the filtered rows after it", func() bool { return eval[string](t, b, rowsShown) == "web-07" })
	eval[any](t, b, `document.getElementById("pattern").select()`)
	b.press(t, "Delete", 46, "")
	if shown := eval[string](t, b, rowsShown); !strings.Contains(shown, "web-00") || !strings.Contains(shown, "web-19") {
		t.Errorf("with nothing typed, the rows are %s", shown)
	}
	b.mustBeCalm(t)
}

func isReadWithoutAScript(t *testing.T, b *browser, p *statusPage) {
	script := func(off bool) {
		b.call(t, "Emulation.setScriptExecutionDisabled", map[string]any{"value": off}, nil)
	}
	script(true)
	defer script(false)
	b.open(t, p.address)
	said := b.accessible(t)
	if !slices.Contains(said, "heading: default") || slices.Contains(said, "button: Pause updates") {
		t.Errorf("the page shows %q", said)
	}
	before := p.loaded.Load()
	poll(t, "the page to be loaded anew", func() bool { return p.loaded.Load() > before })
}

func isReadAloud(t *testing.T, b *browser, p *statusPage) {
	b.open(t, p.address)
	said := b.accessible(t)
	for _, want := range []string{
		"heading: Problems", "heading: Secrets", "heading: default", "button: Pause updates", "region: Roots of ROOTCA", "region: Open streams", "table: Open streams",
	} {
		if !slices.Contains(said, want) {
			t.Errorf("a screen reader is not told %q: %q", want, said)
		}
	}
	if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "heading: Countersign on ") }) {
		t.Errorf("the title does not name the machine: %q", said)
	}
	if !slices.ContainsFunc(said, func(s string) bool {
		return strings.HasPrefix(s, "image: ") && strings.Contains(s, "% of its lifetime is over; renewal ")
	}) {
		t.Errorf("a screen reader is not told what the bars show: %q", said)
	}
}

func isUsedByKeyboard(t *testing.T, b *browser, p *statusPage) {
	b.open(t, p.address)
	var reached []string
	for range 8 {
		b.press(t, "Tab", 9, "")
		reached = append(reached, eval[string](t, b, `document.activeElement.id || document.activeElement.textContent`))
	}
	for _, want := range []string{"Skip to the secrets", "pause", "open-streams", "Metrics"} {
		if !slices.Contains(reached, want) {
			t.Errorf("the keyboard does not reach %q: %q", want, reached)
		}
	}
	eval[any](t, b, `document.getElementById("pause").focus()`)
	b.press(t, "Enter", 13, "\r")
	if !eval[bool](t, b, `document.getElementById("pause").getAttribute("aria-pressed") === "true"`) {
		t.Error("Enter does not press the button")
	}
}

// accessible returns what a screen reader is told, as "role: name".
func (b *browser) accessible(t *testing.T) (said []string) {
	t.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	b.call(t, "Accessibility.getFullAXTree", nil, &tree)
	for _, n := range tree.Nodes {
		if !n.Ignored {
			said = append(said, fmt.Sprintf("%v: %v", n.Role.Value, n.Name.Value))
		}
	}
	return said
}
