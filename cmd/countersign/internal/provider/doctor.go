package provider

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/doctor"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/text"
)

func doctorCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env}
	var sign bool
	cmd := &cobra.Command{
		Use: "doctor [NAME[@VERSION] | PATH]", Short: "Check a provider step by step and explain how to fix the first failing step",
		Long: `Check a provider step by step: its file, permissions, architecture, pin, start,
handshake, metadata, settings (those of the configuration), certificate authority, and the
keys of JWT-SVIDs and WIT-SVIDs if it signs them.
Explain how to fix the first failing step. Without an argument, check all providers of
the configuration.

With --sign, request a REAL CERTIFICATE for the configuration's first identity, with a
throwaway key. The CA counts and audits it like any other.

The exit code is 2 if the settings are wrong, and 1 if anything else is.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return oneProvider(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: in.CompleteProviders,
	}
	addFlags(cmd, &in, "dev", "default_provider", "trust_domain", "namespace", "service_account", "key_type", "ttl")
	output := cli.Output(cmd, "table", "json")
	cmd.Flags().BoolVar(&sign, "sign", false, "request a real certificate for a throwaway key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		look, err := lookWith(&in)
		if err != nil {
			return err
		}
		if err := wiring.CheckRuntimeDir(look.Options.RuntimeDir); err != nil {
			return cli.Wrong(err)
		}
		patients, err := patients(&in, look, args)
		if err != nil {
			return err
		}
		var errs []error
		for _, p := range patients {
			if sign {
				p.Sign, p.Hide = trySign(&in, look, p)
			}
			errs = append(errs, examine(cmd, p, *output))
		}
		return errors.Join(errs...)
	}
	return cmd
}

// patients returns the provider that the argument names, or those of the configuration.
func patients(in *settings.Flags, look looked, args []string) ([]doctor.Patient, error) {
	if len(args) == 1 {
		return []doctor.Patient{patientOf(look, args[0])}, nil
	}
	if in.Empty() {
		return nil, cli.Wrong(errors.New("name a provider, as in \"countersign provider doctor acme\", or a configuration with --config"))
	}
	var all []doctor.Patient
	for _, entry := range look.config.Providers {
		all = append(all, patientOf(look, cmp.Or(entry.Provider, entry.Name)))
	}
	return all, nil
}

// patientOf finds the configuration's entry for a provider, by the entry's name or by the
// provider's.
func patientOf(look looked, what string) doctor.Patient {
	p := doctor.Patient{Catalog: look.Catalog, What: what, Dev: look.config.Dev}
	target, err := look.Find(what)
	for i, entry := range look.Entries {
		provider := cmp.Or(entry.Provider, entry.Name)
		if entry.Name == what && err != nil {
			p.What = provider
		}
		if entry.Name == what || err == nil && provider == target.Name {
			p.Entry = &look.Entries[i]
			p.JWTSVIDs, p.WITSVIDs = look.config.SignsJWT(entry.Name), look.config.SignsWIT(entry.Name)
			return p
		}
	}
	return p
}

// examination is the result as -o json prints it.
type examination struct {
	Provider string        `json:"provider"`
	Steps    []doctor.Step `json:"steps"`
	OK       bool          `json:"ok"`
}

// examine runs the steps and prints each as it ends.
func examine(cmd *cobra.Command, p doctor.Patient, output string) error {
	w, all := cmd.OutOrStdout(), examination{Provider: p.What}
	if output == "table" {
		fmt.Fprintf(w, "%s\n", p.What)
	}
	err := doctor.Examine(cmd.Context(), p, func(s doctor.Step) {
		all.Steps = append(all.Steps, s)
		if output == "table" {
			writeStep(w, s)
		}
	})
	all.OK = err == nil
	if output == "json" {
		err = errors.Join(err, text.WriteJSON(w, all, ""))
	}
	if failed, ok := errors.AsType[*doctor.Error](err); ok {
		err = fmt.Errorf("provider %s: %w", p.What, err)
		if failed.Settings {
			return cli.Wrong(err)
		}
	}
	return err
}

func writeStep(w io.Writer, s doctor.Step) {
	took, paint := s.Took.Round(10*time.Microsecond), cli.Paint(w)
	if s.Error == "" {
		fmt.Fprintf(w, "  %s      %-12s %9s  %s\n", paint(cli.Green, "ok"), s.Name, took, indented(s.Result, 34))
		return
	}
	fmt.Fprintf(w, "  %s  %-12s %9s  %s\n          fix: %s\n", paint(cli.Red, "FAILED"), s.Name, took, indented(s.Error, 34), s.Advice)
	if len(s.Log) > 0 {
		fmt.Fprintf(w, "          log: %s\n", indented(strings.Join(s.Log, "\n"), 15))
	}
}

// indented begins each further line with spaces.
func indented(lines string, spaces int) string {
	return strings.ReplaceAll(lines, "\n", "\n"+strings.Repeat(" ", spaces))
}
