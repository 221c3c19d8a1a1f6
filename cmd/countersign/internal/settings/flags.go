package settings

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/host/verified"
)

// AddFlags adds --config, --set, and the flags of the settings at these paths; of all
// settings where no path is given.
func (f *Flags) AddFlags(cmd *cobra.Command, paths ...string) {
	f.flags, f.warnings = cmd.Flags(), cmd.ErrOrStderr
	f.flags.StringVar(&f.file, config.ConfigFlag, "", "configuration `file`, in YAML")
	f.flags.StringArrayVar(&f.sets, "set", nil, "set any setting by its `path=value`, as in providers.file.sha256=… (repeatable)")
	for _, setting := range config.Settings() {
		if len(paths) == 0 || slices.Contains(paths, setting.Path) {
			f.addFlag(cmd, setting)
		}
	}
}

func (f *Flags) addFlag(cmd *cobra.Command, setting config.Setting) {
	f.flags.Var(&value{kind: setting.Type}, setting.Flag, setting.Usage)
	if setting.IsSwitch() {
		f.flags.Lookup(setting.Flag).NoOptDefVal = "true"
	}
	if setting.Path == "default_provider" {
		_ = cmd.RegisterFlagCompletionFunc(setting.Flag, f.CompleteProviders) // only fails for a flag that does not exist
	} else if words := setting.Words(); words != nil {
		cli.Complete(cmd, setting.Flag, words...)
	}
}

// value is the value of a setting's flag. It accepts any text: what is wrong with it is reported with
// all else that is, in the words of the file.
type value struct{ text, kind string }

// String implements [pflag.Value].
func (v *value) String() string { return v.text }

// Set implements [pflag.Value].
func (v *value) Set(text string) error {
	v.text = text
	return nil
}

// Type implements [pflag.Value].
func (v *value) Type() string { return v.kind }

// AddBuildFlags adds the flags without a setting: they apply to one run only.
func (f *Flags) AddBuildFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.DevBuilds, "dev-provider", nil, "run this build of a provider, `NAME=PATH`, without a pin, instead of the installed one (repeatable)")
	cmd.Flags().StringArrayVar(&f.attached, "insecure-attach", nil, "use the provider that \"countersign provider debug\" runs at `NAME=SOCKET`, neither pinned nor confined (repeatable)")
}

// CompleteProviders completes the names of installed providers. The shell completes
// anything else as a file name.
func (f *Flags) CompleteProviders(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, _ := f.ReadPartly() // a faulty configuration does not hinder completion
	var names []string
	for _, found := range (verified.Finder{Dirs: wiring.SearchDirs(f.Env, c.ProviderDirs)}).List() {
		if found.ShadowedBy == "" && !slices.Contains(names, found.Name) {
			names = append(names, found.Name)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// CompleteSecrets completes the names of the configuration's secrets.
func (f *Flags) CompleteSecrets(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, _ := f.ReadPartly() // as above
	names := append([]string{config.DefaultSecret, config.RootCA}, slices.Concat(c.Files.Names(), c.Spire.Names())...)
	for _, e := range c.BundleEndpoints {
		names = append(names, cmp.Or(e.Name, e.TrustDomain))
	}
	for _, s := range c.Named() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
