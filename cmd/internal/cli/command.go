package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/internal/suggest"
)

// Root returns a program's root command with its subcommands.
func Root(use, short string, below ...*cobra.Command) *cobra.Command {
	root := Group(use, short, below...)
	root.AddCommand(Topic("exit-status", "What the exit status means", exitStatus))
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = buildinfo.This().Version
	root.SetVersionTemplate(versionLine(use) + "\n")
	root.SetHelpFunc(help)
	root.SetUsageFunc(usage)
	refuseUnknownTopics(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Wrong(err) })
	return root
}

// Group returns a command that only groups subcommands.
func Group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Wrong(unknown(cmd, args[0]))
		}
		return cmd.Help()
	}}
	cmd.AddCommand(below...)
	return cmd
}

// unknown is the error for a subcommand that does not exist.
func unknown(cmd *cobra.Command, name string) error {
	var known []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	meant := suggest.Word(name, known)
	if meant == "" {
		meant = below(cmd, name)
	}
	if meant != "" {
		return fmt.Errorf("unknown command %.256q for %q: did you mean %q?", name, cmd.CommandPath(), meant)
	}
	return fmt.Errorf("unknown command %.256q for %q; see \"%s --help\"", name, cmd.CommandPath(), cmd.CommandPath())
}

// below returns the subcommand of a group of cmd that has that name, as in "config validate".
func below(cmd *cobra.Command, name string) string {
	for _, group := range cmd.Commands() {
		for _, sub := range group.Commands() {
			if group.IsAvailableCommand() && sub.IsAvailableCommand() && sub.Name() == name {
				return group.Name() + " " + name
			}
		}
	}
	return ""
}

// refuseUnknownTopics has "help" fail for a command that does not exist, where cobra prints the
// help of the group that lacks it.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	show := help.Run
	help.Run, help.RunE = nil, func(cmd *cobra.Command, args []string) error {
		found, rest, err := root.Find(args)
		if err != nil {
			return Wrong(err)
		}
		if len(rest) > 0 && found.HasSubCommands() {
			return Wrong(unknown(found, rest[0]))
		}
		show(cmd, args)
		return nil
	}
}

// NoArgs rejects arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Wrong(fmt.Errorf("unexpected argument %.256q: %q takes only flags", args[0], cmd.CommandPath()))
	}
	return nil
}
