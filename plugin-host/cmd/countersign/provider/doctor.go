package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/doctor"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/settings"
)

func doctorCommand() *cobra.Command {
	var in settings.Flags
	var output string
	var sign bool
	cmd := &cobra.Command{
		Use: "doctor [NAME[@VERSION] | PATH]", Short: "Walk the way from a provider's file to its certificate, and say what is broken",
		Long: `Walk the way from a provider's file to its certificate: whether it is found, who may
write it, its machine, its pin, its start, its handshake, what it says of itself, its
settings (those of the configuration's entry), its authority. The first step that is
broken says what to do. Without a name, all providers of the configuration.

With --sign the authority is asked for a REAL CERTIFICATE of the configuration's first
identity, for a key that is thrown away; it counts and is audited as any other.

It exits with 2 where the settings are wrong, with 1 where anything else is.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return oneProvider(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "json" && output != "table" {
				return cli.WrongOutput(output, "table")
			}
			look, err := lookWith(&in)
			if err != nil {
				return err
			}
			patients, err := patients(&in, look, args)
			if err != nil {
				return err
			}
			var errs []error
			for _, p := range patients {
				if sign {
					p.Sign = trySign(&in, look, p)
				}
				errs = append(errs, walk(cmd, p, output))
			}
			return errors.Join(errs...)
		},
	}
	in.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().BoolVar(&sign, "sign", false, "have the authority sign a throwaway key; the certificate is real")
	return cmd
}

// patients are what the argument names, or the providers of all entries.
func patients(in *settings.Flags, look looked, args []string) ([]doctor.Patient, error) {
	if len(args) == 1 {
		return []doctor.Patient{patientOf(look, args[0])}, nil
	}
	if in.Nothing() {
		return nil, cli.Wrong(errors.New("name a provider, as in countersign provider doctor acme, or a configuration by --config"))
	}
	var all []doctor.Patient
	for _, entry := range look.config.Providers {
		all = append(all, patientOf(look, cmp.Or(entry.Provider, entry.Name)))
	}
	return all, nil
}

// patientOf finds the entry that runs what is named: its own name, or its provider's.
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
			return p
		}
	}
	return p
}

// seen is a walk as -o json shows it.
type seen struct {
	Provider string        `json:"provider"`
	Steps    []doctor.Step `json:"steps"`
	Well     bool          `json:"well"`
}

func walk(cmd *cobra.Command, p doctor.Patient, output string) error {
	w, all := cmd.OutOrStdout(), seen{Provider: p.What}
	if output == "table" {
		fmt.Fprintf(w, "%s\n", p.What)
	}
	err := doctor.Walk(cmd.Context(), p, func(s doctor.Step) {
		all.Steps = append(all.Steps, s)
		if output == "table" {
			writeStep(w, s)
		}
	})
	all.Well = err == nil
	if output == "json" {
		err = errors.Join(err, json.NewEncoder(w).Encode(all))
	}
	if broken, ok := errors.AsType[*doctor.Error](err); ok {
		err = fmt.Errorf("provider %s is %w", p.What, err)
		if broken.Settings {
			return cli.Wrong(err)
		}
	}
	return err
}

func writeStep(w io.Writer, s doctor.Step) {
	took := s.Took.Round(10 * time.Microsecond)
	if s.Broken == "" {
		fmt.Fprintf(w, "  ok      %-10s %9s  %s\n", s.Name, took, s.Found)
		return
	}
	fmt.Fprintf(w, "  BROKEN  %-10s %9s  %s\n          to do: %s\n", s.Name, took, s.Broken, s.Advice)
}

// entryNamed returns the configuration's entry of that name.
func entryNamed(c config.Config, e *pluginhost.Entry) (config.Provider, bool) {
	for _, entry := range c.Providers {
		if e != nil && entry.Name == e.Name {
			return entry, true
		}
	}
	return config.Provider{}, false
}
