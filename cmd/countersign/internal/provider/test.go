package provider

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/catalog"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/plugin-host/providertest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// providerTest are the flags of "provider test".
type providerTest struct {
	kit, settings string
	levels, only  []string
	output        *string
	quiet         bool
}

func testCommand() *cobra.Command {
	var test providerTest
	cmd := &cobra.Command{
		Use: "test BINARY", Short: "Run the conformance suite against a provider",
		Long: `Run the conformance suite against a provider's binary, written in any language.

The file is named countersign-provider-<name>. A kit file supplies what only the author
can know, such as settings and an identity that the CA denies; checks that need
something missing are reported as not run. The suite starts the provider as an agent
does, stops it, kills it and abandons it.

The exit code is 0 if every check that ran passed, 1 if one failed or the run was
interrupted, and 2 if no check could run.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Wrong(fmt.Errorf("got %d arguments: name one binary to test", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return test.run(cmd, args[0]) },
	}
	cmd.Flags().StringVar(&test.kit, "kit", "", "YAML `file` with what the checks need: settings, identities, files of tokens")
	cmd.Flags().StringVar(&test.settings, "settings", "", "YAML `file` with the provider's settings, replacing the kit's")
	cmd.Flags().StringSliceVar(&test.levels, "level", nil, "`levels` to run: "+strings.Join(levels(), ", ")+" (default all)")
	cmd.Flags().StringSliceVar(&test.only, "only", nil, "`IDs` of the checks to run, such as SIGN-04 (default all)")
	cmd.Flags().BoolVarP(&test.quiet, "quiet", "q", false, "print only failed checks and the summary")
	test.output = cli.Output(cmd, "text", "json", "junit")
	cli.Complete(cmd, "level", levels()...)
	return cmd
}

func (p *providerTest) run(cmd *cobra.Command, path string) error {
	target, err := p.target(path)
	if err != nil {
		return cli.Wrong(err)
	}
	out := cmd.OutOrStdout()
	show := p.printer(out)
	report, err := providertest.Run(cmd.Context(), target, show)
	if report == nil {
		return cli.Wrong(err)
	}
	if err := p.write(out, report); err != nil {
		return err
	}
	if err == nil && report.Failed > 0 {
		err = fmt.Errorf("%d of %d checks failed", report.Failed, report.Failed+report.Passed)
	}
	return err
}

// levels returns the names of the suite's levels.
func levels() (names []string) {
	for _, level := range conformance.Levels() {
		names = append(names, string(level))
	}
	return names
}

// printer returns a function that prints each result as text.
func (p *providerTest) printer(w io.Writer) func(conformance.Result) {
	paint := cli.Paint(w)
	return func(result conformance.Result) {
		if *p.output != "text" || p.quiet && result.Outcome != conformance.Failed {
			return
		}
		var text strings.Builder
		conformance.WriteLine(&text, result)
		verdict, rest, _ := strings.Cut(text.String(), " ")
		_, _ = fmt.Fprint(w, paint(verdictColors[result.Outcome], verdict), " ", rest)
	}
}

var verdictColors = map[conformance.Outcome]cli.Color{
	conformance.Passed: cli.Green, conformance.Unrun: cli.Plain, conformance.Failed: cli.Red,
}

func (p *providerTest) write(w io.Writer, report *conformance.Report) error {
	switch *p.output {
	case "json":
		return report.WriteJSON(w)
	case "junit":
		return report.WriteJUnit(w)
	}
	report.WriteSummary(w)
	return nil
}

// target reads the files given by flags.
func (p *providerTest) target(path string) (providertest.Target, error) {
	target := providertest.Target{Path: path, Only: p.only}
	if _, _, named := verified.ParseBinaryName(filepath.Base(path)); named {
		if err := catalog.CheckFile(path); err != nil {
			return target, err
		}
	}
	for _, name := range p.levels {
		if !slices.Contains(conformance.Levels(), conformance.Level(name)) {
			return target, fmt.Errorf("--level is %.256q: must be one of %s", name, strings.Join(levels(), ", "))
		}
		target.Levels = append(target.Levels, conformance.Level(name))
	}
	for _, id := range p.only {
		if !slices.ContainsFunc(providertest.Checks(), func(c conformance.Check) bool { return c.ID == id }) {
			return target, fmt.Errorf("--only is %.256q: no such check; docs/conformance.md lists them", id)
		}
	}
	if p.kit != "" {
		if err := target.LoadKit(p.kit); err != nil {
			return target, err
		}
	}
	if p.settings != "" {
		return target, target.LoadSettings(p.settings)
	}
	return target, nil
}
