package provider

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/scaffold"
)

func newCommand() *cobra.Command {
	var plan scaffold.Plan
	var source string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Create the module of a new provider that builds, signs and has tests",
		Long: `Create the module of a new provider that builds, has tests and signs with an in-memory
CA; replace that with a call to your own CA. go.mod requires the SDK of this program's
release. If this program was built from a clone, go.mod refers to the clone, or to --sdk,
and no network is needed.`,
		Args: oneProvider,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			plan.Name = args[0]
			if source != "" {
				plan.SDK, err = scaffold.SourceSDK(source)
			} else {
				plan.SDK, err = scaffold.FindSDK()
			}
			if err != nil {
				return cli.Wrong(err)
			}
			dir, err := scaffold.Write(plan)
			if err != nil {
				return cli.Wrong(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "created the provider %s in %s. Next:\n  cd %s\n%s  go test ./...\n  go build -o countersign-provider-%s .\n  countersign provider inspect ./countersign-provider-%s\n",
				plan.Name, dir, dir, plan.SDK.Steps(), plan.Name, plan.Name)
			return err
		},
	}
	cmd.Flags().StringVar(&plan.Dir, "dir", "", "`folder` to create (default countersign-provider-NAME)")
	cmd.Flags().StringVar(&plan.Module, "module", "", "module `path` (default example.com/countersign-provider-NAME)")
	cmd.Flags().StringVar(&source, "sdk", "", "`folder` with a clone of the SDK's repository (default: this program's release, or the clone it was built from)")
	return cmd
}
