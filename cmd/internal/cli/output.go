package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Output adds --output to a command. It takes one of the formats; the first is the default.
func Output(cmd *cobra.Command, formats ...string) *string {
	value := formats[0]
	cmd.Flags().VarP(&format{&value, formats}, "output", "o", "output format: "+alternatives(formats))
	Complete(cmd, "output", formats...)
	return &value
}

// Complete has the shell complete a flag with the given words.
func Complete(cmd *cobra.Command, flag string, words ...string) {
	fixed := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, fixed); err != nil {
		panic(err) // the flag is not there, or has completions already
	}
}

// format is a flag's value that is one of a few words.
type format struct {
	value   *string
	formats []string
}

// String implements [pflag.Value].
func (f *format) String() string { return *f.value }

// Type implements [pflag.Value].
func (f *format) Type() string { return "format" }

// Set implements [pflag.Value].
func (f *format) Set(text string) error {
	if !slices.Contains(f.formats, text) {
		return fmt.Errorf("must be %s", alternatives(f.formats))
	}
	*f.value = text
	return nil
}

func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Color is an ANSI color.
type Color int

// The colors in use.
const (
	Plain  Color = 0
	Red    Color = 31
	Green  Color = 32
	Yellow Color = 33
)

// Paint returns a function that colors text for w. It leaves text alone where w is no
// terminal, where TERM is dumb, and where NO_COLOR is set.
func Paint(w io.Writer) func(c Color, text string) string {
	if !colorful(w) {
		return func(_ Color, text string) string { return text }
	}
	return func(c Color, text string) string {
		if c == Plain {
			return text
		}
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m", c, text)
	}
}

func colorful(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
