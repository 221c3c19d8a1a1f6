// Package top implements "countersign top": a live view of one or several agents in the
// terminal, from what they answer at /status. main adds its [Command]. One goroutine for each
// address asks; that of the command owns all else. What an agent answers is foreign: it is
// bounded, and escaped before it reaches the terminal.
package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxAddresses = 64
	minInterval  = 200 * time.Millisecond
)

// Command returns "top".
func Command(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env, Installed: settings.InstalledFile}
	var interval time.Duration
	var filter cli.Filter
	cmd := &cobra.Command{
		Use: "top [ADDRESS…]", Short: "Show the secrets, providers, streams and events of agents, live",
		Long: `Show the secrets, providers, streams and events of one or several agents, live. An
address is HOST:PORT or unix:PATH, as in status.address; that of countersign-ra or
countersign-discovery works, too. The default is the address in the configuration; without flags and
COUNTERSIGN_CONFIG, in that of a package, /etc/countersign/countersign.yaml.

Keys: q or Ctrl-C quits, the arrows, PgUp, PgDn, Home and End scroll, p pauses. With
NO_COLOR there are no colors. Unless the output is a terminal, and with -o json, the
state is printed once; the exit code is 1 if an agent does not answer.`,
	}
	in.AddFlags(cmd, "status.address")
	output := cli.Output(cmd, "table", "json")
	filter.AddFlag(cmd, "a name, a rule, a state such as late or failing")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two refreshes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sources, err := sourcesOf(&in, args)
		if err == nil && interval < minInterval {
			err = fmt.Errorf("--interval is %s: write %s or more", interval, minInterval)
		}
		if err == nil {
			err = filter.Check(*output)
		}
		if err != nil {
			return cli.Wrong(err)
		}
		tty, keys := terminalOf(cmd.OutOrStdout()), terminalOf(cmd.InOrStdin())
		if *output == "json" || tty == nil || keys == nil {
			return once(cmd.Context(), cmd.OutOrStdout(), sources, *output == "json", filter)
		}
		return live(cmd.Context(), keys, tty, sources, interval, filter)
	}
	return cmd
}

// terminalOf returns a standard stream if it is a terminal, else nil.
func terminalOf(stream any) *os.File {
	if file, ok := stream.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

func sourcesOf(in *settings.Flags, addresses []string) ([]*source, error) {
	if len(addresses) == 0 {
		c, err := in.ReadPartly()
		if err != nil {
			return nil, err
		}
		if c.Status.Address == "" {
			return nil, errors.New("no status.address is configured: name the address of an agent's status page")
		}
		addresses = []string{c.Status.Address}
	}
	if len(addresses) > maxAddresses {
		return nil, fmt.Errorf("%d addresses are named, %d are allowed", len(addresses), maxAddresses)
	}
	var all []*source
	for _, address := range addresses {
		s, err := newSource(address)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// once prints the state.
func once(ctx context.Context, w io.Writer, sources []*source, asJSON bool, filter cli.Filter) error {
	answers := make([]answer, len(sources))
	var all sync.WaitGroup
	for i, s := range sources {
		all.Go(func() { answers[i] = s.ask(ctx) })
	}
	all.Wait()
	v := newView(sources)
	v.filter = filter
	var away error
	for i, a := range answers {
		v.take(i, a)
		if a.err != nil {
			away = errors.Join(away, fmt.Errorf("%s: %s", text.Clean(v.agents[i].address), text.Clean(a.err.Error())))
		}
	}
	if asJSON {
		return errors.Join(printJSON(w, sources, answers), away)
	}
	for _, line := range v.lines(onceWidth, time.Now(), cli.Paint(w)) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return away
}

// onceWidth is as wide as a line gets in a file.
const onceWidth = 1000

// printJSON prints what each agent answered. Only ASCII is in it, as a terminal takes some other
// characters for commands.
func printJSON(w io.Writer, sources []*source, answers []answer) error {
	type one struct {
		Address string          `json:"address"`
		Error   string          `json:"error,omitempty"`
		Status  json.RawMessage `json:"status,omitempty"`
	}
	var all []one
	for i, a := range answers {
		o := one{Address: sources[i].address, Status: a.raw}
		if a.err != nil {
			o.Error = text.Clean(a.err.Error())
		}
		all = append(all, o)
	}
	return text.WriteJSON(w, all, "  ")
}
