package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// width is that of a terminal: help has no longer lines, except for an example that is one word.
const width = 80

// help prints what a command does and how to use it, as cobra's does, in lines of the width. It is
// not a template: with text/template, the linker keeps every exported method.
func help(cmd *cobra.Command, _ []string) {
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", wrapped(cmp.Or(cmd.Long, cmd.Short)), cmd.UsageString())
}

func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintln(w, "Usage:")
	if cmd.Runnable() {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	commands(w, cmd)
	topics(w, cmd)
	flags(w, "Flags", cmd.LocalFlags())
	flags(w, "Global Flags", cmd.InheritedFlags())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s\n", filled(fmt.Sprintf("Use \"%s [command] --help\" for more information about a command.", cmd.CommandPath()), 0, 0))
	}
	return nil
}

func commands(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	fmt.Fprintln(w, "\nAvailable Commands:")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			column := 2 + sub.NamePadding() + 1
			fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), filled(sub.Short, column, column))
		}
	}
}

func topics(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasHelpSubCommands() {
		return
	}
	fmt.Fprintln(w, "\nMore Help:")
	for _, sub := range cmd.Commands() {
		if sub.IsAdditionalHelpTopicCommand() {
			fmt.Fprintf(w, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
}

func flags(w io.Writer, heading string, of *pflag.FlagSet) {
	if of.HasAvailableFlags() {
		fmt.Fprintf(w, "\n%s:\n%s\n", heading, strings.TrimRight(of.FlagUsagesWrapped(width), " \n"))
	}
}

// wrapped fills each paragraph. A line that begins with white space stays as it is.
func wrapped(text string) string {
	paragraphs := strings.Split(strings.Trim(text, "\n"), "\n\n")
	for i, p := range paragraphs {
		if strings.TrimLeft(p, " \t") == p {
			paragraphs[i] = filled(p, 0, 0)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// filled breaks a text into lines that end at the width. The first one begins at a column, and the
// others are indented.
func filled(text string, column, indent int) string {
	var out strings.Builder
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			out.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += n
	}
	return out.String()
}
