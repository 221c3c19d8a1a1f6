package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A log is a sequence of frames, each with a sealed record:
//
//	magic (8) · offset of the frame (8) · size of the header (4) · size of the record (4) ·
//	CRC-32C (4) of the three numbers and the header · record as in a folder's file
//
// The header is the part of the record before its nonce. Numbers are big-endian. The index is read
// from the headers, whose checksum finds damage without the key; the seal finds forgery when the
// record is opened. A frame that is damaged costs no other, as the next one is found by its magic
// and its own offset.
const (
	frameMagic = "\x89cslog1\n"
	prefixSize = len(frameMagic) + 8 + 4 + 4 + 4
	// maxFrame bounds one frame.
	maxFrame = prefixSize + maxFile
	// maxSealedHeader is the largest part of a record before its nonce.
	maxSealedHeader = len(magic) + maxHeader + 1 + saltSize
	// firstRead is enough for most headers.
	firstRead = 1 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a frame that was found in a log.
type frame struct {
	header
	at     int64
	size   int64 // of the whole frame
	record int64 // where the record begins
}

func (f frame) end() int64 { return f.at + f.size }

// The errors of readFrame.
var (
	errNoFrame = errors.New("no frame begins here")
	errTorn    = errors.New("the frame ends behind the end of the log")
)

// encodeFrame puts a sealed record into a frame at an offset.
func encodeFrame(at int64, sealed []byte) ([]byte, error) {
	_, head, err := parse(sealed)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, prefixSize+len(sealed))
	out = append(out, frameMagic...)
	out = binary.BigEndian.AppendUint64(out, uint64(at))          //nolint:gosec // G115: never negative
	out = binary.BigEndian.AppendUint32(out, uint32(head))        //nolint:gosec // G115: bounded by maxSealedHeader
	out = binary.BigEndian.AppendUint32(out, uint32(len(sealed))) //nolint:gosec // G115: bounded by maxFile
	sum := crc32.Update(crc32.Checksum(out[len(frameMagic):], castagnoli), castagnoli, sealed[:head])
	out = binary.BigEndian.AppendUint32(out, sum)
	return append(out, sealed...), nil
}

// readFrame reads the frame at an offset of a log of so many bytes, without its content. With
// errTorn, the header is known.
func readFrame(from io.ReaderAt, at, size int64) (frame, error) {
	text, err := readAt(from, at, min(firstRead, size-at))
	if err != nil {
		return frame{}, err
	}
	if len(text) < prefixSize || string(text[:len(frameMagic)]) != frameMagic {
		return frame{}, errNoFrame
	}
	numbers := text[len(frameMagic):prefixSize]
	head, whole := int64(binary.BigEndian.Uint32(numbers[8:])), int64(binary.BigEndian.Uint32(numbers[12:]))
	if binary.BigEndian.Uint64(numbers) != uint64(at) || head > int64(maxSealedHeader) || head > whole || whole > maxFile { //nolint:gosec // G115: never negative
		return frame{}, errNoFrame
	}
	record := at + int64(prefixSize)
	if record+head > size {
		return frame{}, errTorn
	}
	sealed := text[prefixSize:]
	if head > int64(len(sealed)) {
		if sealed, err = readAt(from, record, head); err != nil {
			return frame{}, err
		}
	}
	return decodeFrame(frame{at: at, record: record, size: int64(prefixSize) + whole}, numbers, sealed[:head], size)
}

func decodeFrame(f frame, numbers, sealed []byte, size int64) (frame, error) {
	sum := crc32.Update(crc32.Checksum(numbers[:16], castagnoli), castagnoli, sealed)
	if sum != binary.BigEndian.Uint32(numbers[16:]) {
		return frame{}, errNoFrame
	}
	h, head, err := parse(sealed)
	switch {
	case err != nil:
		return frame{}, fmt.Errorf("%w: %w", errNoFrame, err)
	case head != len(sealed) || h.At != f.at:
		return frame{}, errNoFrame
	}
	if f.header = h; f.end() > size {
		return f, errTorn
	}
	return f, nil
}

// findFrame returns where the next frame begins from an offset on, size if there is none.
func findFrame(from io.ReaderAt, at, size int64) (int64, error) {
	const chunk = 64 << 10
	for at < size {
		text, err := readAt(from, at, min(chunk, size-at))
		if err != nil {
			return 0, err
		}
		i := bytes.Index(text, []byte(frameMagic))
		if i < 0 {
			at += int64(max(1, len(text)-len(frameMagic)+1))
			continue
		}
		at += int64(i)
		if _, err := readFrame(from, at, size); err == nil {
			return at, nil
		} else if !errors.Is(err, errNoFrame) && !errors.Is(err, errTorn) {
			return 0, err
		}
		at++
	}
	return size, nil
}

// openFrame decrypts the record of a frame that belongs to the log with that ID.
func openFrame(from io.ReaderAt, f frame, key []byte, id string) (content []byte, err error) {
	text, err := readAt(from, f.record, f.end()-f.record)
	if err != nil {
		return nil, err
	}
	h, content, err := openAny(key, text)
	switch {
	case err != nil:
		return nil, err
	case h != f.header || h.Log == "" || id != "" && h.Log != id:
		return nil, errors.New("it is a record of another place")
	}
	return content, nil
}

// errRead is an error of the disk, which says nothing about what is on it.
var errRead = errors.New("failed to read the log")

func readAt(from io.ReaderAt, at, size int64) ([]byte, error) {
	text := make([]byte, size)
	if n, err := from.ReadAt(text, at); n < len(text) {
		return nil, fmt.Errorf("%w: %w", errRead, err)
	}
	return text, nil
}
