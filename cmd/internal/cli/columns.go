package cli

import (
	"io"
	"os"
	"unicode"

	"golang.org/x/term"
)

// Width returns how many columns w has; 0 if it is not a terminal.
func Width(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Cut returns a text if it fits into width columns of a terminal, else its beginning and an
// ellipsis.
func Cut(s string, width int) string {
	if Columns(s) <= width {
		return s
	}
	used := 0
	for i, r := range s {
		if used+columnsOf(r)+1 > width {
			if width < 1 {
				return ""
			}
			return s[:i] + "…"
		}
		used += columnsOf(r)
	}
	return s
}

// CutWithin is [Cut] for names, which differ at their ends: it leaves out the middle.
func CutWithin(s string, width int) string {
	if Columns(s) <= width || width < 8 {
		return Cut(s, width)
	}
	begin := Cut(s, width/3)
	end := []rune(s)
	for Columns(begin)+Columns(string(end)) > width {
		end = end[1:]
	}
	return begin + string(end)
}

// Columns returns how many columns a terminal needs for a text, at most.
func Columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// columnsOf is how many columns a terminal takes for a character, at most.
func columnsOf(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100:
		if r >= 0x2010 && r < 0x2e80 {
			return 1 // punctuation, arrows, lines
		}
		return 2
	}
	return 1
}
