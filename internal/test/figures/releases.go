package figures

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const releasesCommand = "make bench NAME=releases"

// notable is by how much a figure changes between two releases to be reported.
const notable = 0.1

// RecordRelease adds the rows of a page to its table of releases, as the column of a release,
// and returns the rows of which a figure differs by more than a tenth from the release before.
// It does not know which direction is better.
func RecordRelease(path, release string) (changed []string, err error) {
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	begin, end := marks(releasesCommand)
	before, rest, found := strings.Cut(string(page), begin)
	written, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return nil, fmt.Errorf("%s has no marks %q and %q", path, begin, end)
	}
	table := readReleases(written)
	table.add(release, readRows(before+after))
	return table.changed(), os.WriteFile(path, []byte(before+begin+"\n"+table.String()+"\n"+end+after), 0o644)
}

// cells returns those of a table's line, and nil for another line.
func cells(line string) (all []string) {
	if !strings.HasPrefix(line, "| ") {
		return nil
	}
	for cell := range strings.SplitSeq(strings.Trim(line, "| "), "|") {
		all = append(all, strings.TrimSpace(cell))
	}
	return all
}

// measured is one row of a page.
type measured struct{ name, values string }

// surroundings is the part of a heading about a run rather than a figure.
var surroundings = regexp.MustCompile(`, (client|both sides) on the same cores| \(\d{4}-\d\d-\d\d.*\)`)

// readRows returns the rows of what commands wrote into a page. A row is named after its table's first
// heading and its first cell; one that continues another, with "…", after both.
func readRows(page string) (rows []measured) {
	named := map[string]int{}
	for i, block := range strings.Split(page, "<!-- Written by ") {
		if i == 0 {
			continue
		}
		block, _, _ = strings.Cut(block, "<!-- End of ")
		heading, main := "", ""
		lines := strings.Split(block, "\n")
		for j, line := range lines {
			row := cells(line)
			switch {
			case len(row) < 2:
			case j+1 < len(lines) && strings.HasPrefix(lines[j+1], "|---"):
				heading = surroundings.ReplaceAllString(row[0], "")
			default:
				if !strings.HasPrefix(row[0], "…") {
					main = row[0]
				} else {
					row[0] = main + " " + row[0]
				}
				name := heading + ": " + row[0]
				if named[name]++; named[name] > 1 {
					name += fmt.Sprintf(" (%d)", named[name])
				}
				rows = append(rows, measured{name, strings.Join(row[1:], "; ")})
			}
		}
	}
	return rows
}

// releases is the table of releases: for each row its values, in the order of names.
type releases struct {
	names  []string
	rows   []string
	values map[string][]string
}

func readReleases(written string) *releases {
	r := &releases{values: map[string][]string{}}
	for line := range strings.Lines(written) {
		switch row := cells(strings.TrimSpace(line)); {
		case len(row) == 0:
		case r.names == nil:
			r.names = row[1:]
		default:
			r.rows = append(r.rows, row[0])
			r.values[row[0]] = row[1:]
		}
	}
	return r
}

// add sets the column of a release. A row that was not measured has a dash.
func (r *releases) add(release string, rows []measured) {
	column := slices.Index(r.names, release)
	if column < 0 {
		column, r.names = len(r.names), append(r.names, release)
	}
	for _, row := range rows {
		if !slices.Contains(r.rows, row.name) {
			r.rows = append(r.rows, row.name)
		}
		r.values[row.name] = filled(r.values[row.name], column+1)
		r.values[row.name][column] = row.values
	}
	for _, name := range r.rows {
		r.values[name] = filled(r.values[name], len(r.names))
	}
}

func filled(values []string, n int) []string {
	for len(values) < n {
		values = append(values, "-")
	}
	return values
}

var number = regexp.MustCompile(`\d+(\.\d+)?`)

// changed returns the rows with a figure that differs notably between the last two releases.
func (r *releases) changed() (all []string) {
	for _, name := range r.rows {
		values := r.values[name]
		if len(values) < 2 {
			continue
		}
		before, now := values[len(values)-2], values[len(values)-1]
		if differs(number.FindAllString(before, -1), number.FindAllString(now, -1)) {
			all = append(all, fmt.Sprintf("%s: %s, before %s", name, now, before))
		}
	}
	return all
}

// differs reports a notable difference between figures of the same row.
func differs(before, now []string) bool {
	if len(before) != len(now) {
		return false // measured in another way
	}
	for i := range now {
		a, _ := strconv.ParseFloat(before[i], 64)
		b, _ := strconv.ParseFloat(now[i], 64)
		if math.Abs(b-a) > notable*a {
			return true
		}
	}
	return false
}

func (r *releases) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "| figure | %s |\n|---%s|\n", strings.Join(r.names, " | "), strings.Repeat("|---", len(r.names)))
	for _, name := range r.rows {
		fmt.Fprintf(&out, "| %s | %s |\n", name, strings.Join(r.values[name], " | "))
	}
	return out.String()
}
