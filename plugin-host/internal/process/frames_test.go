package process

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// peer connects a counted connection with frames that the test sends.
func peer(t *testing.T) (host *counted, provider net.Conn, flooded *bool) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	flooded = new(bool)
	return newCounted(near, func() { *flooded = true }), far, flooded
}

// send writes the frame again and again for as long as the host reads, at the pace.
func send(to net.Conn, frame func(*http2.Framer) error, times int, pace time.Duration) {
	framer := http2.NewFramer(to, nil)
	for range times {
		if frame(framer) != nil {
			return
		}
		time.Sleep(pace)
	}
	to.Close()
}

func TestFloodOfFramesEndsConnection(t *testing.T) {
	for name, frame := range map[string]func(*http2.Framer) error{
		"PING":              func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) },
		"SETTINGS":          func(f *http2.Framer) error { return f.WriteSettings() },
		"DATA of no stream": func(f *http2.Framer) error { return f.WriteData(99, false, make([]byte, 100)) },
		"unknown":           func(f *http2.Framer) error { return f.WriteRawFrame(200, 0, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, provider, flooded := peer(t)
				go send(provider, frame, 1_000_000, 0)
				if _, err := io.Copy(io.Discard, host); !errors.Is(err, errFrameFlood) || !*flooded {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestFramesAtOrdinaryRateArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, provider, flooded := peer(t)
		go send(provider, func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }, 10_000, 10*time.Millisecond)
		if n, err := io.Copy(io.Discard, host); err != nil || *flooded || n != 17*10_000 {
			t.Errorf("%d bytes arrived, then %v", n, err)
		}
	})
}

// A reply of 4 MiB has 256 frames, and comes because of a request.
func TestFramesOfRepliesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, provider, flooded := peer(t)
		var asked bytes.Buffer
		asked.WriteString(http2.ClientPreface)
		out := http2.NewFramer(&asked, nil)
		for id := uint32(1); id < 200; id += 2 {
			_ = out.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("x"), EndHeaders: true})
		}
		go func() { _, _ = io.Copy(io.Discard, provider) }()
		for b := asked.Bytes(); len(b) > 0; b = b[min(7, len(b)):] { // in pieces
			if _, err := host.Write(b[:min(7, len(b))]); err != nil {
				t.Fatal(err)
			}
		}
		go send(provider, func(f *http2.Framer) error { return f.WriteData(1, false, make([]byte, 16<<10)) }, 100*256, 0)
		if _, err := io.Copy(io.Discard, host); err != nil || *flooded {
			t.Errorf("got %v", err)
		}
	})
}

// Many calls go over one stream, in DATA frames alone.
func TestFramesOfAnswersOnOneStreamArrive(t *testing.T) {
	for name, test := range map[string]struct {
		content int // of each frame that the host sends
		floods  bool
	}{
		"calls": {600, false},
		"what the provider's flow control splits": {1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, provider, flooded := peer(t)
				go func() { _, _ = io.Copy(io.Discard, provider) }()
				out := http2.NewFramer(host, nil)
				_, _ = host.Write([]byte(http2.ClientPreface))
				const calls = 5000
				for range calls {
					_ = out.WriteData(1, false, make([]byte, test.content))
				}
				go send(provider, func(f *http2.Framer) error { return f.WriteData(1, false, make([]byte, 1<<10)) }, 4*calls, 0)
				if _, err := io.Copy(io.Discard, host); *flooded != test.floods {
					t.Errorf("flooded: %v, want %v; %v", *flooded, test.floods, err)
				}
			})
		})
	}
}
