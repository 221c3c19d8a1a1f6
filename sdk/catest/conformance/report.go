package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is the result of a run.
type Report struct {
	Provider string   `json:"provider"` // name and version, or the file
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	NotRun   int      `json:"not_run"`
	Results  []Result `json:"results"`
}

// Add adds a result.
func (r *Report) Add(result Result) {
	r.Results = append(r.Results, result)
	switch result.Outcome {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	case Unrun:
		r.NotRun++
	}
}

// WriteLine writes one result as text; a failure with its rule and reason. What the kit lacks is
// listed once, by [Report.WriteSummary].
func WriteLine(w io.Writer, r Result) {
	switch r.Outcome {
	case Passed:
		fmt.Fprintf(w, "ok       %-9s %s\n", r.ID, r.Rule)
	case Unrun:
		fmt.Fprintf(w, "not run  %-9s %s\n", r.ID, r.Rule)
		if r.Needs == "" {
			fmt.Fprintf(w, "                   %s\n", r.Seen)
		}
	case Failed:
		fmt.Fprintf(w, "FAILED   %-9s %s\n         seen      %s\n         why       %s\n", r.ID, r.Rule, r.Seen, r.Why)
		if len(r.Log) > 0 {
			fmt.Fprintf(w, "         log       %s\n", strings.Join(r.Log, "\n                   "))
		}
	}
}

// WriteSummary writes the summary as text: the numbers, and what the kit lacks.
func (r *Report) WriteSummary(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %d passed, %d failed, %d not run\n", r.Provider, r.Passed, r.Failed, r.NotRun)
	checks := map[string][]string{}
	for _, result := range r.Results {
		if result.Needs != "" {
			checks[result.Needs] = append(checks[result.Needs], result.ID)
		}
	}
	if len(checks) == 0 {
		return
	}
	fmt.Fprintln(w, "not run, as input is missing; give it in a kit file with --kit (docs/conformance.md):")
	for _, entry := range slices.Sorted(maps.Keys(checks)) {
		fmt.Fprintf(w, "  %-26s for %s\n", entry, strings.Join(checks[entry], ", "))
	}
}

// WriteJSON writes one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes one JUnit testsuite for CI systems.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{Name: r.Provider, Tests: len(r.Results), Failures: r.Failed, Skipped: r.NotRun}
	var took time.Duration
	for _, result := range r.Results {
		took += result.Took
		suite.Cases = append(suite.Cases, result.junit())
	}
	suite.Time = seconds(took)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	out := xml.NewEncoder(w)
	out.Indent("", "  ")
	if err := out.Encode(suite); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

func (r Result) junit() junitCase {
	c := junitCase{Class: string(r.Level), Name: r.ID + " " + r.Rule, Time: seconds(r.Took)}
	switch r.Outcome {
	case Failed:
		c.Failure = &junitMessage{Message: r.Seen, Text: strings.Join(append([]string{r.Why}, r.Log...), "\n")}
	case Unrun:
		c.Skipped = &junitMessage{Message: r.Seen}
	}
	return c
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
