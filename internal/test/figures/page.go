// Package figures writes what a command measures into a page of documentation, between marks:
// [Write]. [Usage] measures a process.
package figures

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// marks are lines of a page. What stands between them is a run's of the command; the rest is
// written by hand.
func marks(command string) (begin, end string) {
	return "<!-- Written by " + command + ". -->\n", "<!-- End of what " + command + " writes. -->\n"
}

// Write runs measure and puts what it prints between the marks of the page. A run that failed
// leaves the page as it is.
func Write(path, command string, measure func() error) error {
	beginMark, endMark := marks(command)
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return fmt.Errorf("%s has no marks %q and %q", path, beginMark, endMark)
	}
	figures, err := printedBy(measure)
	fmt.Print(figures)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+beginMark+"\n"+header()+"\n"+figures+"\n"+endMark+after), 0o644)
}

// printedBy returns what f prints.
func printedBy(f func() error) (string, error) {
	out, err := os.CreateTemp("", "figures")
	if err != nil {
		return "", err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }() // also where a benchmark ends in f
	os.Stdout = out
	err = f()
	_, seek := out.Seek(0, io.SeekStart)
	text, read := io.ReadAll(out)
	return string(text), errors.Join(err, seek, read)
}

// header is when and where the figures were measured.
func header() string {
	return fmt.Sprintf("Measured on %s with %s, on %d cores (%s).\n",
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), processor())
}

func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // only on Linux
	_, model, found := strings.Cut(string(info), "model name")
	model, _, _ = strings.Cut(strings.TrimLeft(model, "\t :"), "\n")
	if !found || model == "" {
		return runtime.GOARCH
	}
	return model
}
