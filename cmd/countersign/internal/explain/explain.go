// Package explain implements "countersign config": it validates and explains the
// configuration that an agent with the same flags and environment would have. main adds its
// [Command]; nothing here is started or kept.
package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/agent"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/text"
)

// Command returns "config" with its subcommands.
func Command(env environ.Vars) *cobra.Command {
	return cli.Config(config.Schema, validateCommand(env), explainCommand(env), fromEnvCommand(env))
}

func explainCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env, Installed: settings.InstalledFile}
	cmd := &cobra.Command{
		Use: "explain", Short: "Show every setting with its origin, and which CA was chosen and why",
		Long: `Show every setting with its origin, and which CA was chosen and why. Start nothing.
Settings that the provider's schema marks as secret are shown as (set). Without a lock
file, which records them, so is each provider setting that may be a credential.

The exit code is 2 if a setting is wrong; the settings that could be understood are
shown all the same.`,
		Args: cli.NoArgs,
	}
	in.AddFlags(cmd)
	output := cli.Output(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, wrong := in.Read()
		write := writeExplained
		if *output == "json" {
			write = encodeExplained
		}
		if err := write(cmd.OutOrStdout(), explain(c)); err != nil {
			return err
		}
		if wrong != nil {
			return cli.Wrong(wrong)
		}
		return nil
	}
	return cmd
}

// explained is the output of "config explain".
type explained struct {
	Settings  []config.Explained `json:"settings"`
	Authority config.Choice      `json:"authority"`         // signs "default"
	Socket    string             `json:"socket"`            // the agent's SDS socket; empty: off
	Gateway   string             `json:"gateway,omitempty"` // the gateway's socket; empty: off
	Secrets   []config.Source    `json:"secrets"`
	JWTSVIDs  string             `json:"-"` // the signer and the audiences; in JSON the settings have them
}

func explain(c config.Config) explained {
	e := explained{Settings: c.Explain(), Authority: c.Choice(), Socket: c.ListenPath(), Secrets: c.Sources()}
	if c.Gateway.Enabled {
		e.Gateway = c.Gateway.Socket
	}
	if j := c.WorkloadAPI.JWTSVID; j.On() {
		e.JWTSVIDs = fmt.Sprintf("JWT-SVIDs for the audiences %s are signed by %s\n", strings.Join(text.CleanAll(j.Audiences), ", "), j.Provider)
	}
	return e
}

func encodeExplained(w io.Writer, e explained) error {
	return text.WriteJSON(w, e, "  ")
}

func writeExplained(w io.Writer, e explained) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, s := range e.Settings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Setting, shortly(s.Value), s.From)
	}
	fmt.Fprintln(table, "\nSECRET\tKIND\tFROM\tBECAUSE")
	for _, s := range e.Secrets {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.Name, s.Kind, s.Place(), s.Rule)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s; the agent serves %s\n%s", answer(e.Authority, e.Secrets), e.sockets(), e.JWTSVIDs)
	return err
}

// sockets lists the sockets that the agent serves.
func (e explained) sockets() string {
	var all []string
	if e.Socket != "" {
		all = append(all, e.Socket)
	}
	if e.Gateway != "" {
		all = append(all, "the gateway's "+e.Gateway)
	}
	return strings.Join(all, " and ")
}

// answer is where "default" comes from, which every Envoy requests.
func answer(authority config.Choice, secrets []config.Source) string {
	if authority.Entry != "" {
		return fmt.Sprintf("%s is signed by %s, because %s", config.DefaultSecret, authority.Entry, authority.Rule)
	}
	for _, s := range secrets {
		if s.Name == config.DefaultSecret {
			return fmt.Sprintf("%s comes from %s, because %s", s.Name, s.Place(), s.Rule)
		}
	}
	return "nothing provides " + config.DefaultSecret
}

// shortly formats a value on one line; "-" if it is empty.
func shortly(value any) string {
	v := reflect.ValueOf(value)
	switch {
	case value == nil, v.Kind() == reflect.Pointer, v.Kind() == reflect.String && v.Len() == 0, v.Kind() == reflect.Slice && v.Len() == 0:
		return "-"
	case v.Kind() == reflect.String:
		return v.String()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

func fromEnvCommand(env environ.Vars) *cobra.Command {
	return &cobra.Command{
		Use: "from-env", Short: "Print the configuration file for Istio's variables",
		Long: `Print the configuration file that is equivalent to the variables of Istio's agent in this
environment say, for a move from that agent (docs/from-istio-agent.md). Comments name the
variables that have no effect. Flags and COUNTERSIGN_ variables are not part of it, and
neither are the pins of providers and the proxy's command.

The exit code is 2 if a variable is wrong.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, warnings, err := config.FromIstio(env)
			if err != nil {
				return cli.Wrong(err)
			}
			for _, w := range warnings {
				fmt.Fprintf(cmd.OutOrStdout(), "# %s\n", w)
			}
			_, err = cmd.OutOrStdout().Write(file)
			return err
		},
	}
}

func validateCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env, Installed: settings.InstalledFile}
	var envoy string
	var store bool
	cmd := &cobra.Command{
		Use: "validate", Short: "Validate the configuration without starting anything",
		Long: `Validate the configuration, and find and verify the providers' binaries. Start
nothing: a provider validates its own settings when the agent starts it, and "countersign
provider doctor" has it do so before. Without flags and COUNTERSIGN_CONFIG, the configuration is
that of a package, /etc/countersign/countersign.yaml, if it is there.

Files of revocation lists that cannot be read are warnings: the agent starts and waits for them.
So is a runtime_dir that does not exist, which a service manager may create; without it the agent
does not start. Further warnings name what a restart or an upgrade would cost: no "state" with a CA
that bills or limits certificates, and a pin beside the lock file of a provider's package; and what
does not fit certificates on demand in the Envoy bootstrap of proxy.command, or of --envoy. With
--store, they name what keeps the shared store from being used: run it as the user of the agent.

The exit code is 2 if a setting is wrong.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := in.Read()
			if err == nil {
				err = agent.Verify(env, c)
			}
			if err != nil {
				return cli.Wrong(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the configuration is valid; %s\n", answer(c.Choice(), c.Sources()))
			faults := slices.Concat(agent.Warnings(env, c), settings.OvertakenPins(env, &c))
			if envoy != "" {
				faults = append(faults, agent.EnvoyFaults(c, envoy)...)
			}
			if store {
				faults = append(faults, agent.StoreFaults(cmd.Context(), c.Store)...)
			}
			for _, fault := range faults {
				fmt.Fprintf(cmd.OutOrStdout(), "warning: %s\n", fault)
			}
			if len(c.Providers) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "not checked: the settings of %s, and whether the CA answers%s; run \"countersign provider doctor%s\"\n", names(c.Providers), signsJWT(c), fileFlag(&in))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&envoy, "envoy", "", "an Envoy bootstrap to check, too, for certificates on demand")
	cmd.Flags().BoolVar(&store, "store", false, "reach the store that machines share, and check the rights there")
	in.AddFlags(cmd)
	return cmd
}

// signsJWT is unknown, too, without running a provider.
func signsJWT(c config.Config) string {
	if j := c.WorkloadAPI.JWTSVID; j.On() {
		return " and " + j.Provider + " signs JWT-SVIDs"
	}
	return ""
}

func names(providers []config.Provider) string {
	var all []string
	for _, p := range providers {
		all = append(all, p.Name)
	}
	return strings.Join(all, ", ")
}

// fileFlag repeats the configuration file in a command, if there is one.
func fileFlag(in *settings.Flags) string {
	if in.FileName() == "" {
		return ""
	}
	return " --config " + text.Clean(in.FileName())
}
