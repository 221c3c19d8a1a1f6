// Package http2frames finds the HTTP/2 frames in one direction of a connection, however its bytes
// come in pieces. It keeps no payload.
package http2frames

import "encoding/binary"

// Preface is how many bytes a client sends before its first frame.
const Preface = 24

const headerLength = 9

// The kinds and flags of frames that matter here.
const (
	Data    = 0
	Headers = 1
	Reset   = 3

	EndStream = 1
	Padded    = 8
)

// Frame is the header of a frame.
type Frame struct {
	Length int
	Kind   byte
	Flags  byte
	Stream uint32
}

// Ends reports whether the sender ends its half of the stream with this frame.
func (f Frame) Ends() bool { return f.Kind <= Headers && f.Flags&EndStream != 0 }

// Scanner scans one direction. It is not safe for concurrent use.
type Scanner struct {
	header [headerLength]byte
	have   int // bytes of the header
	skip   int // bytes of the payload still to come
	now    Frame
}

// OfClient returns the scanner of what a client sends, which begins with the preface.
func OfClient() Scanner { return Scanner{skip: Preface, now: Frame{Kind: 0xff}} }

// Scan calls begin for the frames that begin in these bytes, and payload for their pieces of a
// payload, unless it is nil. The end is true for the last piece. A frame without a payload has one
// piece, which is empty.
func (s *Scanner) Scan(b []byte, begin func(Frame), payload func(f Frame, piece []byte, end bool)) {
	for len(b) > 0 {
		if s.skip > 0 {
			some := min(s.skip, len(b))
			s.skip -= some
			if payload != nil {
				payload(s.now, b[:some], s.skip == 0)
			}
			b = b[some:]
			continue
		}
		some := copy(s.header[s.have:], b)
		s.have, b = s.have+some, b[some:]
		if s.have < headerLength {
			return
		}
		s.have = 0
		s.now = parse(s.header)
		s.skip = s.now.Length
		begin(s.now)
		if s.skip == 0 && payload != nil {
			payload(s.now, nil, true)
		}
	}
}

func parse(h [headerLength]byte) Frame {
	return Frame{
		Length: int(binary.BigEndian.Uint32(h[:4]) >> 8),
		Kind:   h[3],
		Flags:  h[4],
		Stream: binary.BigEndian.Uint32(h[5:]) & (1<<31 - 1),
	}
}
