package inbound

import (
	"encoding/binary"

	"github.com/countersign-dev/countersign/internal/http2frames"
)

const (
	prefixLength = 5 // of a message: whether it is compressed, and its length
	// perPiece is what gRPC keeps for a piece of a message besides its bytes.
	perPiece = 128
)

// stream follows the messages of one stream.
type stream struct {
	prefix [prefixLength]byte
	have   int   // bytes of the prefix
	left   int64 // bytes of the message after the prefix that are still to come
	held   int64 // bytes of an unfinished message, as gRPC keeps them
}

// take follows some more bytes.
func (s *stream) take(b []byte) {
	for len(b) > 0 {
		piece := len(b)
		if s.have < prefixLength {
			some := copy(s.prefix[s.have:], b)
			s.have, b = s.have+some, b[some:]
			if s.have == prefixLength {
				s.left = int64(binary.BigEndian.Uint32(s.prefix[1:]))
			}
		}
		some := min(s.left, int64(len(b)))
		s.left, b = s.left-some, b[some:]
		if s.have == prefixLength && s.left == 0 {
			s.have, s.held = 0, 0
			continue
		}
		s.held += buffered(piece)
	}
}

// kept returns what gRPC keeps for a piece of so many bytes: its buffers have few sizes.
func buffered(piece int) int64 {
	switch {
	case piece <= 1<<10:
		return int64(piece) + perPiece
	case piece <= 4<<10:
		return 4<<10 + perPiece
	default:
		return max(16<<10, int64(piece)) + perPiece
	}
}

// padding takes the padding out of the payload of a frame. A client may pad to hide how its
// messages go.
type padding struct {
	begun bool
	data  int // bytes of data still to come
}

func (p *padding) strip(f http2frames.Frame, piece []byte) []byte {
	if !p.begun && len(piece) > 0 {
		p.begun, p.data = true, f.Length
		if f.Flags&http2frames.Padded != 0 {
			p.data = max(0, f.Length-1-int(piece[0]))
			piece = piece[1:]
		}
	}
	piece = piece[:min(len(piece), p.data)]
	p.data -= len(piece)
	return piece
}
