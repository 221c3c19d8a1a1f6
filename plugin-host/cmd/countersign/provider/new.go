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
		Use: "new NAME", Short: "Write the module of a new provider, which builds, has tests and signs",
		Long: `Write the module of a new provider, which builds, has tests and signs with a CA in
memory: put a call of yours in its place. No network is needed. Until the sdk's first
tag, go.mod takes it from the source that this program was built of, or from --sdk.`,
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the provider %s is in %s. Now:\n  cd %s\n%s  go test ./...\n  go build -o countersign-provider-%s .\n  countersign provider inspect ./countersign-provider-%s\n",
				plan.Name, dir, dir, plan.SDK.Steps(), plan.Name, plan.Name)
			return err
		},
	}
	cmd.Flags().StringVar(&plan.Dir, "dir", "", "folder to make (default countersign-provider-NAME)")
	cmd.Flags().StringVar(&plan.Module, "module", "", "path of the module (default example.com/countersign-provider-NAME)")
	cmd.Flags().StringVar(&source, "sdk", "", "folder of a clone of the sdk's repository (default: what this program was built of)")
	return cmd
}
