package provider

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/providertest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// providerTest is what the flags of `provider test` say.
type providerTest struct {
	kit, settings string
	levels, only  []string
	output        string
	quiet         bool
}

func testCommand() *cobra.Command {
	var test providerTest
	cmd := &cobra.Command{
		Use: "test BINARY", Short: "Hold a provider's binary against the conformance suite",
		Long: "Hold a provider's binary, of any language, against the conformance suite.\n\n" +
			"The file is called countersign-provider-<name>. What only its author can give, such as settings and a name that is\n" +
			"refused, stands in a kit file; checks that need what is not there are reported as not run. The provider is started as\n" +
			"an agent starts it, stopped, killed and left alone.\n\n" +
			"Exit status: 0, each check that was run passed; 1, one failed or the run was broken off; 2, nothing could be run.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Wrong(fmt.Errorf("%d arguments: one binary is tested at a time", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return test.run(cmd, args[0]) },
	}
	cmd.Flags().StringVar(&test.kit, "kit", "", "YAML file with what the checks need: settings, identities, tokens by file")
	cmd.Flags().StringVar(&test.settings, "settings", "", "YAML file with the provider's settings alone, in place of the kit's")
	cmd.Flags().StringSliceVar(&test.levels, "level", nil, "levels to run: behaviour, settings, sign, roots, root-watch, token-exchange (default all)")
	cmd.Flags().StringSliceVar(&test.only, "only", nil, "IDs of the checks to run, such as SIGN-04 (default all)")
	cmd.Flags().BoolVarP(&test.quiet, "quiet", "q", false, "print failed checks and the summary only")
	cmd.Flags().StringVarP(&test.output, "output", "o", "text", "text, json or junit")
	return cmd
}

func (p *providerTest) run(cmd *cobra.Command, path string) error {
	target, err := p.target(path)
	if err != nil {
		return cli.Wrong(err)
	}
	out := cmd.OutOrStdout()
	report, err := providertest.Run(cmd.Context(), target, func(result conformance.Result) {
		if p.output == "text" && (!p.quiet || result.Outcome == conformance.Failed) {
			conformance.WriteLine(out, result)
		}
	})
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

func (p *providerTest) write(w io.Writer, report *conformance.Report) error {
	switch p.output {
	case "json":
		return report.WriteJSON(w)
	case "junit":
		return report.WriteJUnit(w)
	}
	report.WriteSummary(w)
	return nil
}

// target reads the files that the flags name.
func (p *providerTest) target(path string) (providertest.Target, error) {
	target := providertest.Target{Path: path, Only: p.only}
	if !slices.Contains([]string{"text", "json", "junit"}, p.output) {
		return target, cli.WrongOutput(p.output, "text or junit")
	}
	for _, name := range p.levels {
		if !slices.Contains(conformance.Levels(), conformance.Level(name)) {
			return target, fmt.Errorf("--level is %.256q: there are %v", name, conformance.Levels())
		}
		target.Levels = append(target.Levels, conformance.Level(name))
	}
	for _, id := range p.only {
		if !slices.ContainsFunc(providertest.Checks(), func(c conformance.Check) bool { return c.ID == id }) {
			return target, fmt.Errorf("--only is %.256q: docs/conformance.md lists the checks", id)
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
