package inbound

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
)

// wire is a connection of which one side is bytes.
type wire struct {
	net.Conn
	from io.Reader
}

func (w wire) Read(b []byte) (int, error)  { return w.from.Read(b) }
func (w wire) Write(b []byte) (int, error) { return len(b), nil }
func (w wire) RemoteAddr() net.Addr        { return &net.UnixAddr{} }
func (w wire) Close() error                { return nil }

// message is a message of so many bytes behind its prefix, of which the last are left out.
func message(size, missing int) []byte {
	return append([]byte{0, 0, 0, byte(size >> 8), byte(size)}, make([]byte, size-missing)...)
}

func TestUnfinishedMessagesAreCounted(t *testing.T) {
	const one = 105 - 1 + perPiece // a message of 100 bytes but the last
	headers := func(f *http2.Framer, id uint32, ends bool) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: ends})
	}
	open := func(f *http2.Framer) error {
		if err := headers(f, 1, false); err != nil {
			return err
		}
		return f.WriteData(1, false, message(100, 1))
	}
	type sends = func(*http2.Framer) error
	for name, tt := range map[string]struct {
		client, server []sends
		want           int64
	}{
		"unfinished":         {client: []sends{open}, want: one},
		"a prefix":           {client: []sends{func(f *http2.Framer) error { _ = headers(f, 1, false); return f.WriteData(1, false, []byte{0, 0}) }}, want: 2 + perPiece},
		"finished":           {client: []sends{open, func(f *http2.Framer) error { return f.WriteData(1, false, []byte{0}) }}},
		"finished, and more": {client: []sends{open, func(f *http2.Framer) error { return f.WriteData(1, false, append([]byte{0}, message(100, 1)...)) }}, want: one},
		"two at once": {client: []sends{func(f *http2.Framer) error {
			_ = headers(f, 1, false)
			return f.WriteData(1, false, append(message(100, 0), message(0, 0)...))
		}}},
		"padded":                         {client: []sends{open, func(f *http2.Framer) error { return f.WriteDataPadded(1, false, []byte{0}, make([]byte, 200)) }}},
		"padding alone":                  {client: []sends{open, func(f *http2.Framer) error { return f.WriteDataPadded(1, false, nil, make([]byte, 200)) }}, want: one},
		"ended":                          {client: []sends{open, func(f *http2.Framer) error { return f.WriteData(1, true, nil) }}},
		"ended by trailers":              {client: []sends{open, func(f *http2.Framer) error { return headers(f, 1, true) }}},
		"reset":                          {client: []sends{open, func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }}},
		"reset of another":               {client: []sends{open, func(f *http2.Framer) error { return f.WriteRSTStream(3, http2.ErrCodeCancel) }}, want: one},
		"of no stream":                   {client: []sends{func(f *http2.Framer) error { return f.WriteData(1, false, message(100, 1)) }}},
		"of an ended stream":             {client: []sends{func(f *http2.Framer) error { _ = headers(f, 1, true); return f.WriteData(1, false, message(100, 1)) }}},
		"two streams":                    {client: []sends{open, func(f *http2.Framer) error { _ = headers(f, 3, false); return f.WriteData(3, false, message(100, 1)) }}, want: 2 * one},
		"reset by the server":            {client: []sends{open}, server: []sends{func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }}},
		"ended by the server":            {client: []sends{open}, server: []sends{func(f *http2.Framer) error { return headers(f, 1, true) }}},
		"headers and data of the server": {client: []sends{open}, server: []sends{func(f *http2.Framer) error { _ = headers(f, 1, false); return f.WriteData(1, false, []byte{1}) }}, want: one},
	} {
		t.Run(name, func(t *testing.T) {
			sum := NewSum(1 << 20)
			var client bytes.Buffer
			client.WriteString(http2.ClientPreface)
			for _, send := range tt.client {
				if err := send(http2.NewFramer(&client, nil)); err != nil {
					t.Fatal(err)
				}
			}
			c := newConn(sum, wire{from: &client}, slog.Default())
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Fatal(err)
			}
			for _, send := range tt.server {
				if err := send(http2.NewFramer(c, nil)); err != nil {
					t.Fatal(err)
				}
			}
			if got, _ := sum.taken(); got != tt.want {
				t.Errorf("%d bytes are counted, want %d", got, tt.want)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if got, connections := sum.taken(); got != 0 || connections != 0 {
				t.Errorf("after Close %d bytes of %d connections are counted", got, connections)
			}
		})
	}
}

// A client may send byte by byte.
func TestBytesThatComeOneByOneAreFollowed(t *testing.T) {
	var client bytes.Buffer
	client.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&client, nil)
	for id := uint32(1); id < 5; id += 2 {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteDataPadded(id, false, message(1000, int(id-1)), make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	sum := NewSum(1 << 20)
	c := newConn(sum, wire{from: iotest.OneByteReader(&client)}, slog.Default())
	defer c.Close()
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
	if len(c.streams) != 2 || c.streams[1].held != 0 || c.streams[3].left != 2 || c.streams[3].held < 1003 {
		t.Errorf("%+v, %+v", c.streams[1], c.streams[3])
	}
}

// The one that was never answered is closed first, then the oldest.
func TestOldestUnansweredIsClosedFirst(t *testing.T) {
	sum := NewSum(250)
	hold := func(answered bool) *conn {
		c := newConn(sum, wire{}, slog.New(slog.DiscardHandler))
		c.now.answered = answered
		c.add(100)
		c.report()
		return c
	}
	known, stranger, later := hold(true), hold(false), hold(false)
	if known.over || !stranger.over || later.over {
		t.Fatalf("known %t, stranger %t, later %t", known.over, stranger.over, later.over)
	}
	last := hold(true)
	if known.over || !later.over || last.over {
		t.Fatalf("known %t, later %t, last %t", known.over, later.over, last.over)
	}
	newest := hold(true)
	if !known.over || last.over || newest.over {
		t.Errorf("known %t, last %t, newest %t", known.over, last.over, newest.over)
	}
}
