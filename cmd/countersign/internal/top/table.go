package top

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxRows   = 1000 // of a table
	maxColumn = 60   // columns of the terminal; the last column of a table has no limit
)

type painter = func(c cli.Color, text string) string

// cell is a text that is safe to print: bounded, without control characters.
type cell struct {
	text  string
	color cli.Color
}

func plain(foreign string) cell { return colored(foreign, cli.Plain) }

func colored(foreign string, c cli.Color) cell { return cell{text.Clean(foreign), c} }

// table has a heading and rows.
type table struct {
	head []string
	rows [][]cell
	more int // rows beyond the limit
}

func newTable(head ...string) *table { return &table{head: head} }

func (t *table) row(cells ...cell) {
	if len(t.rows) == maxRows {
		t.more++
		return
	}
	t.rows = append(t.rows, cells)
}

// lines draws the table, nothing where it has no rows.
func (t *table) lines(width int, paint painter) []string {
	if len(t.rows) == 0 {
		return nil
	}
	var head []cell
	for _, h := range t.head {
		head = append(head, cell{text: h})
	}
	widths := t.widths(head)
	all := []string{line(head, widths, width, paint)}
	for _, row := range t.rows {
		all = append(all, line(row, widths, width, paint))
	}
	if t.more > 0 {
		all = append(all, cut(fmt.Sprintf("and %d more", t.more), width))
	}
	return all
}

func (t *table) widths(head []cell) []int {
	widths := make([]int, len(head))
	for _, row := range append([][]cell{head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], columns(c.text))
		}
	}
	for i := range widths[:len(widths)-1] {
		widths[i] = min(widths[i], maxColumn)
	}
	return widths
}

// line draws a row in at most width columns.
func line(row []cell, widths []int, width int, paint painter) string {
	var out strings.Builder
	left := width
	for i, c := range row {
		shown := cut(c.text, min(widths[i], left))
		if shown != "" {
			out.WriteString(paint(c.color, shown))
		}
		left -= columns(shown)
		if i == len(row)-1 {
			break
		}
		gap := min(left, widths[i]-columns(shown)+2)
		out.WriteString(strings.Repeat(" ", gap))
		left -= gap
	}
	return strings.TrimRight(out.String(), " ")
}

// cut returns the beginning of a text that fits.
func cut(s string, width int) string {
	if columns(s) <= width {
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

func columns(s string) (n int) {
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
