package provider

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/scaffold"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
)

func newCommand() *cobra.Command {
	var plan scaffold.Plan
	var source string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Create the project of a new provider that builds, signs and has tests",
		Long: `Create the project of a new provider that builds, has tests and signs with an in-memory
CA; replace that with a call to your own CA.

In Go, it is a module. go.mod requires the sdk of this program's
release. Where there is none, as this program was built from a clone, the module gets a
copy of the sdk. Nothing is looked up: the module builds offline if the module cache (or
GOPROXY) has the sdk's dependencies, and for a release the sdk.

In another language (--lang), the project gets a copy of that language's library and a
lock file of all other dependencies, which its package manager downloads.`,
		Args: oneProvider,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			plan.Name = args[0]
			if plan.SDK, err = findSDK(plan.Lang, source); err != nil {
				return cli.Wrong(err)
			}
			dir, err := scaffold.Write(plan)
			if err != nil {
				return cli.Wrong(err)
			}
			return printSteps(cmd, plan, dir)
		},
	}
	cmd.Flags().StringVar(&plan.Lang, "lang", scaffold.Go, "`language`: "+strings.Join(scaffold.Languages(), ", "))
	cli.Complete(cmd, "lang", scaffold.Languages()...)
	cmd.Flags().StringVar(&plan.Dir, "dir", "", "`folder` to create (default countersign-provider-NAME)")
	cmd.Flags().StringVar(&plan.Module, "module", "", "module `path` (default example.com/countersign-provider-NAME)")
	cmd.Flags().StringVar(&source, "sdk", "", "`folder` with a clone of the sdk's repository, for go.mod to refer to")
	return cmd
}

// findSDK returns the sdk for a module in Go: that of a clone, or this program's own.
func findSDK(lang, source string) (scaffold.SDK, error) {
	switch {
	case lang != scaffold.Go && source != "":
		return scaffold.SDK{}, fmt.Errorf("a provider in %s does not use the sdk in Go: leave out --sdk", lang)
	case lang != scaffold.Go:
		return scaffold.SDK{}, nil
	case source != "":
		return scaffold.SourceSDK(source)
	}
	return scaffold.FindSDK()
}

func printSteps(cmd *cobra.Command, plan scaffold.Plan, dir string) error {
	commands, missing := plan.Steps()
	if missing != "" {
		missing = " (" + missing + ")"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "created the provider %s in %s. Next%s:\n  cd %s\n  %s\n%s",
		plan.Name, dir, missing, dir, strings.Join(commands, "\n  "), todo(plan))
	return err
}

// todo is what the new provider's tests wait for.
func todo(plan scaffold.Plan) string {
	return fmt.Sprintf("It signs with a CA for tests, and %q fails until it calls yours: step 4 of docs/write-a-provider.md.\n", plan.Test())
}
