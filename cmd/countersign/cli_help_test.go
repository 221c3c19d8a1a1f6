package main_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

func TestHelpHas80Columns(t *testing.T) {
	long := strings.Repeat("a sentence of some words, ", 9)
	cmd := &cobra.Command{Use: "work", Short: long, Long: long + "\n\n\tkept --as it is\n\n" + long, Run: func(*cobra.Command, []string) {}}
	cmd.Flags().String("a-flag-with-a-long-name", "", "`value`: "+long)
	root := cli.Root("program", long, cli.Group("group", long, cmd))
	for _, args := range [][]string{{"--help"}, {"group", "--help"}, {"group"}, {"help", "group", "work"}, {"completion", "bash", "--help"}} {
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(args)
		must(t, root.Execute())
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("%v: %d columns: %s", args, n, line)
			}
		}
		if strings.Join(args, " ") == "help group work" && (!strings.Contains(out.String(), "\n\n\tkept --as it is\n\n") ||
			!strings.Contains(out.String(), "\nUsage:\n  program group work [flags]\n\nFlags:\n      --a-flag-with-a-long-name value   value: a sentence")) {
			t.Errorf("%v:\n%s", args, out.String())
		}
	}
}
