package cli

import "github.com/spf13/cobra"

// Topic returns a text that "help NAME" prints. The manual page of the program has it as a section.
func Topic(name, short, long string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: long}
}

// exitStatus is the same in all programs.
const exitStatus = `  0    The command did what it is for. The agent ended in order, after
       SIGTERM or SIGINT.
  1    A failure that is not in the settings, such as a CA that does not
       answer.
  2    A flag, variable, setting or file is wrong, or another program has the
       socket. Nothing was started; each error is one line. A restart without
       a change does not help.
  130  A second signal ended the program at once.

A proxy that runs as the agent's child passes its own exit status on.`
