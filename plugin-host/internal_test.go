package pluginhost

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestAHandshakeLineIsDialledOnlyAsTheProtocolSays(t *testing.T) {
	const dir = "/run/private"
	for line, want := range map[string]string{
		"1|1|unix|fd:4|grpc":                   "",
		"1|1|unix|fd:4|grpc|":                  "",
		"1|1|unix|/run/private/s|grpc":         "",
		"1|1|unix|fd:4|grpc|QUFB":              "and a certificate",
		"1|1|unix|/run/private/s|grpc|%%%":     "unpadded base64",
		"1|1|unix|/run/private/s|grpc|QUFB":    "cannot be parsed",
		"1|1|unix|/run/private/../s|grpc":      "outside the folder",
		"1|1|unix|/run/private/a/s|grpc":       "outside the folder",
		"1|1|unix|s|grpc":                      "outside the folder",
		"1|1|tcp|127.0.0.1:80|grpc":            "network",
		"1|2|unix|fd:4|grpc":                   "protocol version",
		"1|x|unix|fd:4|grpc":                   "protocol version",
		"2|1|unix|fd:4|grpc":                   "core protocol",
		"1|1|unix|fd:4|netrpc":                 "grpc is supported",
		"1|1|unix|fd:4":                        "handshake line should be",
		"hello":                                "handshake line should be",
		"1|1|unix|/run/private/s|grpc|x|true|": "handshake line should be",
	} {
		h, err := parseHandshake(line, []int{1}, dir)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %+v, %v; want %q", line, h, err, want)
		}
	}
}

func TestTheFirstLineIsBoundedAndAlone(t *testing.T) {
	for text, want := range map[string]string{
		"line\n":                    "",
		"line\nmore":                "second line",
		strings.Repeat("x", 20_000): "longer than",
		"cut off":                   "EOF",
		"":                          "EOF",
	} {
		line, err := readHandshake(strings.NewReader(text))
		if want == "" && (err != nil || line != "line") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20q: %.20q, %v; want %q", text, line, err, want)
		}
	}
}

func TestCrashesBackOffAndThenOpenTheCircuit(t *testing.T) {
	var r recovery
	now := time.Unix(0, 0)
	for i, most := range []time.Duration{100, 200, 400, 800} {
		wait, open := r.next(now, 0)
		if most *= time.Millisecond; open || wait > most || wait < most/2 {
			t.Errorf("crash %d: %s, open %v", i+1, wait, open)
		}
	}
	for i, want := range []time.Duration{30, 60, 120, 240, 300, 300} {
		if wait, open := r.next(now, 0); !open || wait != want*time.Second {
			t.Errorf("probe %d: %s, open %v, want %ds", i+1, wait, open, want)
		}
	}
	if wait, open := r.next(now, time.Minute); open || wait > 100*time.Millisecond {
		t.Errorf("after a minute of health: %s, open %v", wait, open)
	}
}

func TestSlowCrashesNeverOpenTheCircuit(t *testing.T) {
	var r recovery
	now := time.Unix(0, 0)
	for range 50 {
		now = now.Add(31 * time.Second)
		if wait, open := r.next(now, 0); open || wait > maxBackoff {
			t.Fatalf("%s, open %v", wait, open)
		}
	}
}

func TestACrashReportBeginsWithTheReasonHoweverLongTheStack(t *testing.T) {
	r := newRelay(Options{}.withDefaults().Log)
	r.run(strings.NewReader("hello\npanic: no such thing\n" + strings.Repeat("stack\n", 100)))
	if lines := r.lines(); len(lines) != keptLines+1 || lines[0] != "panic: no such thing" || lines[1] != "stack" {
		t.Errorf("%q", lines)
	}
}

// Starts beside each other sweep what was left behind, but not each other's.
func TestFoldersOfStartsBesideEachOtherStay(t *testing.T) {
	base, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				d, err := newRuntimeDir(base)
				if err != nil {
					t.Error(err)
					return
				}
				if !d.isThere() {
					t.Errorf("%s was swept away while it was locked", d.path)
				}
				d.remove()
			}
		})
	}
	all.Wait()
	if left, _ := os.ReadDir(base); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAFolderThatCannotBeLockedIsNotLeftBehind(t *testing.T) {
	base := t.TempDir()
	var limit, few syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few = limit
	few.Cur = 0 // what is open stays open; nothing more can be
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err := makeLocked(base)
	if restored := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); restored != nil {
		t.Fatal(restored)
	}
	if left, _ := os.ReadDir(base); err == nil || len(left) > 0 {
		t.Errorf("%v; left: %v", err, left)
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add("1|1|unix|fd:4|grpc|")
	f.Add("1|1|unix|/run/private/s|grpc|QUFB")
	f.Fuzz(func(t *testing.T, text string) {
		line, err := readHandshake(strings.NewReader(text))
		if err != nil {
			return
		}
		h, err := parseHandshake(line, []int{1}, "/run/private")
		if err == nil && h.auth != Channel && !strings.HasPrefix(h.address, "/run/private/") {
			t.Errorf("%q would be dialled", h.address)
		}
	})
}

func FuzzRelay(f *testing.F) {
	f.Add(`{"@level":1}` + "\n")
	f.Add("\n\n{\n" + strings.Repeat("x", 10_000))
	f.Fuzz(func(t *testing.T, text string) {
		r := newRelay(Options{}.withDefaults().Log)
		r.run(strings.NewReader(text))
		for _, line := range r.lines() {
			if len(line) > 1200 || strings.ContainsAny(line, "\n\x00\a") {
				t.Errorf("a line of %d bytes: %.40q", len(line), line)
			}
		}
	})
}
