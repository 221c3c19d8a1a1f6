package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/internal/transport"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const maxReport = 64 << 20

// Status returns the command "status" of the program of that name: it fetches the status of
// a running one, an R in JSON, and writes it.
func Status[R any](program, short string, write func(io.Writer, R) error) *cobra.Command {
	var address string
	cmd := &cobra.Command{Use: "status", Short: short, Args: cli.NoArgs}
	cmd.Flags().StringVar(&address, "address", settings.StatusAddress, "status.`address` of the service: host:port or unix:PATH")
	output := cli.Output(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		said, err := fetch(cmd.Context(), program, address)
		if err != nil {
			return err
		}
		var r R
		if err := json.Unmarshal(said, &r); err != nil && (*output != "json" || !json.Valid(said)) {
			return fmt.Errorf("the server at %s is not a %s of this version: %s", address, program, wire.CleanText(err.Error(), ""))
		}
		if *output == "json" {
			return text.WriteJSON(cmd.OutOrStdout(), json.RawMessage(said), "  ")
		}
		return write(cmd.OutOrStdout(), r)
	}
	return cmd
}

// fetch gets the status of a service on this machine.
func fetch(ctx context.Context, program, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	at, err := unixsocket.ParseAddress(address)
	if err != nil {
		return nil, cli.Wrong(fmt.Errorf("--address is %.256q: %w", address, err))
	}
	host := address
	if at.Network() == "unix" {
		host = "localhost"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/status.json", nil)
	if err != nil {
		return nil, cli.Wrong(fmt.Errorf("--address is %.256q: must be host:port or unix:PATH", address))
	}
	answer, err := (&http.Client{Transport: transport.Local(at)}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("no %s is listening on %s: %w", program, address, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReport))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s: the service may still be starting", address, answer.Status)
	}
	return text, err
}

// Tables prints one table below the other, each with columns of its own.
type Tables struct{ *tabwriter.Writer }

// NewTables returns tables to w. Call Flush at the end; it returns the first error.
func NewTables(w io.Writer) Tables { return Tables{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// Line prints one row, with a dash for an empty cell.
func (t Tables) Line(cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(strings.ReplaceAll(cell, "\t", " "), "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

// Head begins a table.
func (t Tables) Head(cells ...string) {
	_ = t.Flush() // the last Flush returns the error
	fmt.Fprintln(t)
	t.Line(cells...)
}

// Moment formats a time; the zero time is empty.
func Moment(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return clock.Stamp(at)
}
