package pki

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrMalformed means that a PEM block or its content is damaged, as by an editor or by a program that
// is still writing; another error, that Go does not take what others may.
var ErrMalformed = errors.New("is malformed")

// Blocks returns the PEM blocks of a text (RFC 7468) in order. It takes what editors and
// other systems leave in such files: byte order marks, UTF-16, any line ending, white space
// around lines, text and comments between blocks, files joined without a newline.
//
// For a block that it cannot read, it returns an error in place of the block, which names the
// block by its number, type and line: [pem.Decode] skips such a block silently.
func Blocks(text []byte) iter.Seq2[*pem.Block, error] {
	return func(yield func(*pem.Block, error) bool) {
		text = plain(text)
		s := blockScanner{yield: yield, source: text}
		for line := range bytes.Lines(text) {
			s.line++
			s.at, s.next = s.next, s.next+len(line)
			for part := range partsOf(bytes.TrimSpace(line)) {
				if !s.scan(part) {
					return
				}
			}
		}
		s.abandon()
	}
}

// plain returns a text as UTF-8 with \n at the end of lines. One that is so already is not copied.
func plain(text []byte) []byte {
	text = fromUTF16(text)
	if mark := []byte("\ufeff"); bytes.Contains(text, mark) {
		text = bytes.ReplaceAll(text, mark, nil) // files joined by cat have more than one
	}
	if bytes.IndexByte(text, '\r') >= 0 {
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
		text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	}
	return text
}

// fromUTF16 decodes what PowerShell and Notepad write as "Unicode".
func fromUTF16(text []byte) []byte {
	if len(text) < 2 || !(text[0] == 0xff && text[1] == 0xfe || text[0] == 0xfe && text[1] == 0xff) {
		return text
	}
	low := int(text[0] & 1) // 1: the low byte comes first
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = uint16(text[2*i+low])<<8 | uint16(text[2*i+1-low])
	}
	return []byte(string(utf16.Decode(units)))
}

var beginMark = []byte("-----BEGIN ")

// partsOf splits a line before each BEGIN that another text precedes, unless it is a comment.
func partsOf(line []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(line) > 0 && line[0] != '#' && line[0] != ';' {
			at := 1 + bytes.Index(line[1:], beginMark)
			if at == 0 {
				break
			}
			if !yield(line[:at]) {
				return
			}
			line = line[at:]
		}
		yield(line)
	}
}

// blockScanner collects the lines of one block after another.
type blockScanner struct {
	yield    func(*pem.Block, error) bool
	source   []byte
	at, next int // where the line and the one after it begin in source
	line     int // counts from 1, as do the blocks
	block    int

	open     bool
	begun    int    // the line of its BEGIN
	label    []byte // its type, fit for an error; empty if it may be anything else
	from, to int    // where its lines are in source, as long as all are as [pem.Decode] takes them
	copied   bool
	text     bytes.Buffer // its lines otherwise
}

// scan takes a line; false ends the scan.
func (s *blockScanner) scan(line []byte) bool {
	switch word, label := boundary(line); {
	case word == "BEGIN":
		if !s.abandon() {
			return false
		}
		s.begin(label)
		s.add(line)
	case word == "END" && !s.open:
		s.begin(label)
		return s.spoiled("its BEGIN line is missing or damaged")
	case word == "END":
		s.add(line)
		return s.end(label)
	case s.open:
		s.add(line)
	}
	return true
}

func (s *blockScanner) begin(label []byte) {
	s.block++
	s.open, s.begun, s.label = true, s.line, label
	s.from, s.to, s.copied = s.at, s.at, false
	s.text.Reset()
}

func (s *blockScanner) add(line []byte) {
	asItIs := s.next-s.at == len(line)+1 && s.source[s.next-1] == '\n'
	if asItIs && !s.copied {
		s.to = s.next
		return
	}
	if !s.copied {
		s.copied = true
		s.text.Write(s.source[s.from:s.to])
	}
	s.text.Write(line)
	s.text.WriteByte('\n')
}

// end decodes the lines of the open block.
func (s *blockScanner) end(label []byte) bool {
	text := s.source[s.from:s.to]
	if s.copied {
		text = s.text.Bytes()
	}
	block, rest := pem.Decode(text)
	switch {
	case block != nil && len(rest) == 0:
		s.open = false
		if block.Type == "X509 CERTIFICATE" { // OpenSSL's old name
			block.Type = certificateBlock
		}
		return s.yield(block, nil)
	case !bytes.Equal(label, s.label):
		return s.spoiled("its BEGIN and END lines differ")
	}
	return s.spoiled("its base64 or its BEGIN or END line is damaged")
}

// abandon gives up the open block, if there is one.
func (s *blockScanner) abandon() bool {
	return !s.open || s.spoiled("its END line is missing or damaged")
}

func (s *blockScanner) spoiled(reason string) bool {
	s.open = false
	label := ""
	if len(s.label) > 0 {
		label = fmt.Sprintf(" %q", s.label)
	}
	return s.yield(nil, fmt.Errorf("PEM block %d%s at line %d %w: %s", s.block, label, s.begun, ErrMalformed, reason))
}

// boundary returns the word BEGIN or END of a line that delimits a block, however many and
// whatever dashes it has: word processors change them. label is fit for an error.
func boundary(line []byte) (word string, label []byte) {
	if len(line) == 0 || line[0] != '-' && line[0] < utf8.RuneSelf {
		return "", nil // a line of base64, as most are
	}
	rest := bytes.TrimLeftFunc(line, isDash)
	if len(line)-len(rest) < 2 {
		return "", nil
	}
	for _, word := range []string{"BEGIN", "END"} {
		if after, ok := bytes.CutPrefix(rest, []byte(word+" ")); ok {
			return word, labelOf(after)
		}
	}
	return "", nil
}

func isDash(r rune) bool { return unicode.Is(unicode.Pd, r) }

// labelOf returns the type, or nothing if it may be anything else, such as a key on the same line.
func labelOf(rest []byte) []byte {
	label := bytes.TrimRightFunc(rest, isDash)
	for _, c := range label {
		if !isUpper(c) && !isDigit(c) && c != ' ' && c != '#' {
			return nil
		}
	}
	if len(label) > 32 {
		return nil
	}
	return label
}
