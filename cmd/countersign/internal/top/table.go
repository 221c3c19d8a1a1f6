package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxRows   = 1000 // of a table
	maxColumn = 60   // columns of the terminal; the last column of a table has no limit
	minColumn = 8    // a narrow terminal cuts no column shorter
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
	head   []string
	rows   [][]cell
	more   int // rows beyond the limit
	filter cli.Filter
	// without are the columns that a narrow terminal does not show, the least needed first.
	without []string
	last    int // how much of the last column needs room, if it has that much
}

func newTable(head ...string) *table { return &table{head: head, last: 12} }

// dispensable names columns that are left out where the table is too wide, the first one first.
func (t *table) dispensable(columns ...string) *table {
	t.without = append(t.without, columns...)
	return t
}

func (t *table) row(cells ...cell) {
	if !slices.ContainsFunc(cells, func(c cell) bool { return t.filter.Keeps(c.text) }) {
		return
	}
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
	all := append([][]cell{head}, t.rows...)
	widths := widthsOf(all)
	for _, name := range t.without {
		if i := slices.IndexFunc(all[0], func(c cell) bool { return c.text == name }); i >= 0 && t.needs(widths) > width {
			all = leftOut(all, i)
			widths = slices.Delete(widths, i, i+1)
		}
	}
	t.narrow(widths, width)
	var lines []string
	for _, row := range all {
		lines = append(lines, line(row, widths, width, paint))
	}
	if t.more > 0 {
		lines = append(lines, cli.Cut(fmt.Sprintf("and %d more", t.more), width))
	}
	return lines
}

// leftOut returns the rows without a column.
func leftOut(rows [][]cell, column int) (all [][]cell) {
	for _, row := range rows {
		all = append(all, slices.Concat(row[:column], row[column+1:]))
	}
	return all
}

func widthsOf(rows [][]cell) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], cli.Columns(c.text))
		}
	}
	for i := range widths[:len(widths)-1] {
		widths[i] = min(widths[i], maxColumn)
	}
	return widths
}

// needs is how wide a terminal has to be for all columns, and the beginning of the last one.
func (t *table) needs(widths []int) int {
	last := len(widths) - 1
	sum := 2*last + min(widths[last], t.last)
	for _, w := range widths[:last] {
		sum += w
	}
	return sum
}

// narrow takes from the widest columns until all have room.
func (t *table) narrow(widths []int, width int) {
	for t.needs(widths) > width {
		widest := 0
		for i, w := range widths[:len(widths)-1] {
			if w > widths[widest] {
				widest = i
			}
		}
		if len(widths) == 1 || widths[widest] <= minColumn {
			return
		}
		widths[widest]--
	}
}

// line draws a row in at most width columns.
func line(row []cell, widths []int, width int, paint painter) string {
	var out strings.Builder
	left := width
	for i, c := range row {
		shorten := cli.Cut
		if i == 0 {
			shorten = cli.CutWithin // names differ at their ends
		}
		shown := shorten(c.text, min(widths[i], left))
		if shown != "" {
			out.WriteString(paint(c.color, shown))
		}
		left -= cli.Columns(shown)
		if i == len(row)-1 {
			break
		}
		gap := min(left, widths[i]-cli.Columns(shown)+2)
		out.WriteString(strings.Repeat(" ", gap))
		left -= gap
	}
	return strings.TrimRight(out.String(), " ")
}
