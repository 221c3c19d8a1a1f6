//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// browser is a Chromium without a window, with one page, driven by its DevTools
// protocol over a pipe (https://chromedevtools.github.io/devtools-protocol).
type browser struct {
	*process
	in      *os.File
	session string // of the page

	mu      sync.Mutex
	changed notice
	last    int                // id of a call
	answers map[int]devMessage // by id
	events  []devMessage
}

// devMessage is an answer (ID) or an event (Method).
type devMessage struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func needChromium(t *testing.T) string {
	t.Helper()
	return programs.Foreign(t, "COUNTERSIGN_CHROMIUM")
}

// openBrowser starts a Chromium with an empty page.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{in: in, changed: newNotice(), answers: map[int]devMessage{}}
	// Its own sandbox needs rights that a container may not have; it opens nothing but
	// the agent's page.
	b.process = prepareProcess(t, nil, needChromium(t), "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe",
		"--user-data-dir="+filepath.Join(proctest.Folder(t), "profile"), "about:blank")
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	b.begin(t)
	theirIn.Close()
	theirOut.Close()
	read := make(chan struct{})
	go func() { defer close(read); b.listen(out) }()
	t.Cleanup(func() { // before the process is ended
		b.post("Browser.close", nil)
		<-read
		in.Close()
		out.Close()
	})
	b.attach(t)
	return b
}

// attach opens the page that all later calls are about.
func (b *browser) attach(t *testing.T) {
	t.Helper()
	var target struct{ TargetID string }
	b.call(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility"} {
		b.call(t, domain+".enable", nil, nil)
	}
}

// listen takes messages, each of which ends with a zero byte.
func (b *browser) listen(out *os.File) {
	var rest []byte
	buffer := make([]byte, 1<<16)
	for {
		n, err := out.Read(buffer)
		rest = append(rest, buffer[:n]...)
		for {
			text, after, whole := bytes.Cut(rest, []byte{0})
			if !whole {
				break
			}
			rest = after
			b.take(text)
		}
		if err != nil {
			return
		}
	}
}

func (b *browser) take(text []byte) {
	var m devMessage
	if json.Unmarshal(text, &m) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.ID != 0 {
		b.answers[m.ID] = m
	} else {
		b.events = append(b.events, m)
	}
	b.changed.tell()
}

// post sends a call and returns its id.
func (b *browser) post(method string, params any) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	call := map[string]any{"id": b.last, "method": method}
	if params != nil {
		call["params"] = params
	}
	if b.session != "" && method != "Browser.close" {
		call["sessionId"] = b.session
	}
	text, err := json.Marshal(call)
	if err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	return b.last, err
}

// call makes a call and waits for its result.
func (b *browser) call(t *testing.T, method string, params, result any) {
	t.Helper()
	id, err := b.post(method, params)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	var answer devMessage
	await(t, &b.mu, &b.changed, "an answer to "+method, func() bool {
		answer = b.answers[id]
		return answer.ID != 0
	})
	if answer.Error != nil {
		t.Fatalf("%s: %s", method, answer.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
}

// open loads an address and waits until it is there.
func (b *browser) open(t *testing.T, address string) {
	t.Helper()
	// The page that is there may be loading itself anew: its event must not be taken for ours.
	const blank = "about:blank"
	b.call(t, "Page.navigate", map[string]any{"url": blank}, nil)
	poll(t, "the page before to be gone", func() bool {
		return eval[string](t, b, `location.href + " " + document.readyState`) == blank+" complete"
	})
	b.mu.Lock()
	b.events = nil
	b.mu.Unlock()
	b.call(t, "Page.navigate", map[string]any{"url": address}, nil)
	await(t, &b.mu, &b.changed, "the page to be loaded", func() bool { return len(b.happened("Page.loadEventFired")) > 0 })
}

// happened returns the events of a name since open. The caller has the lock.
func (b *browser) happened(method string) (found []devMessage) {
	for _, e := range b.events {
		if e.Method == method {
			found = append(found, e)
		}
	}
	return found
}

// wide makes the window so wide, in light or dark, on the screen or on paper.
func (b *browser) wide(t *testing.T, width int, scheme, media string) {
	t.Helper()
	b.call(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call(t, "Emulation.setEmulatedMedia", map[string]any{"media": media, "features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// eval returns what an expression of JavaScript is on the page.
func eval[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	var out struct {
		Result           struct{ Value T }
		ExceptionDetails *struct{ Text string }
	}
	b.call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &out)
	if out.ExceptionDetails != nil {
		t.Fatalf("%s: %s", expression, out.ExceptionDetails.Text)
	}
	return out.Result.Value
}

// picture takes one of the whole page and leaves it among the test's artifacts.
func (b *browser) picture(t *testing.T, name string) image.Image {
	t.Helper()
	var shot struct{ Data []byte }
	b.call(t, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	writeWhole(t, filepath.Join(t.ArtifactDir(), name), shot.Data)
	img, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		t.Fatal(errors.Join(errors.New("the picture is no PNG"), err))
	}
	return img
}

// press presses and releases a key.
func (b *browser) press(t *testing.T, key string, code int, text string) {
	t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if kind == "keyDown" && text != "" {
			params["text"] = text
		}
		b.call(t, "Input.dispatchKeyEvent", params, nil)
	}
}
