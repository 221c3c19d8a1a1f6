package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/control-plane/cmd/countersign-discovery/config"
	"github.com/countersign-dev/countersign/control-plane/kubernetes/fleet"
	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/discovery/folder"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const maxReport = 64 << 20

// seen is the part of a [report] that the command prints.
type seen struct {
	Build   buildinfo.Info   `json:"build"`
	Server  discovery.Status `json:"server"`
	Secrets []struct {
		Name string `json:"name"`
		Held bool   `json:"held"`
		Item struct {
			NotAfter time.Time `json:"not_after"`
		} `json:"item"`
		Failure struct {
			Reason string `json:"reason"`
		} `json:"failure"`
	} `json:"secrets"`
	TrustDomains []trustDomain  `json:"trust_domains"`
	Clusters     []fleet.Status `json:"clusters"`

	Unknown    []config.ClusterName `json:"unknown_clusters"`
	Kubernetes *counted             `json:"kubernetes"`
	Watched    *watching            `json:"watched_secrets"`
	Folder     *folder.Status       `json:"folder"`
}

func statusCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of a running service: streams, clusters, files and trust domains", Args: cli.NoArgs,
	}
	cmd.Flags().StringVar(&address, "address", config.StatusAddress, "status.address of the service: host:port or unix:PATH")
	output := cli.Output(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := fetch(cmd.Context(), address)
		if err != nil {
			return err
		}
		if *output == "json" {
			_, err := cmd.OutOrStdout().Write(text)
			return err
		}
		var r seen
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("the server at %s is not a countersign-discovery of this version: %s", address, wire.CleanText(err.Error(), ""))
		}
		return writeReport(cmd.OutOrStdout(), r)
	}
	return cmd
}

// fetch gets the status of a service on this machine.
func fetch(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	network, at, host := "tcp", address, address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, at, host = "unix", path, "localhost"
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/status.json", nil)
	if err != nil {
		return nil, cli.Wrong(fmt.Errorf("--address is %.256q: must be host:port or unix:PATH", address))
	}
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("no countersign-discovery is listening on %s: %w", address, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReport))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s: the service may still be starting", address, answer.Status)
	}
	return text, err
}

// writeReport prints one table for each part of the report.
func writeReport(w io.Writer, r seen) error {
	state := "ready"
	if r.Server.NotReady != "" {
		state = "not ready: " + r.Server.NotReady
	}
	if r.Server.Draining {
		state = "shutting down"
	}
	fmt.Fprintf(w, "countersign-discovery %s, %s\n", r.Build.Version, state)
	t := tables{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.secrets(r)
	t.clusters(r)
	t.watched(r)
	t.kubernetes(r)
	t.trustDomains(r)
	t.folder(r)
	t.streams(r)
	return t.Flush()
}

// tables prints one table below the other, each with columns of its own.
type tables struct{ *tabwriter.Writer }

// line prints one row, with a dash for an empty cell.
func (t tables) line(cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(strings.ReplaceAll(cell, "\t", " "), "-")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t"))
}

// head begins a table.
func (t tables) head(cells ...string) {
	_ = t.Flush() // the last Flush returns the error
	fmt.Fprintln(t)
	t.line(cells...)
}

// moment formats a time; the zero time is empty.
func moment(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return clock.Stamp(at)
}

func (t tables) secrets(r seen) {
	t.head("SECRET", "HELD", "EXPIRES", "FAILURE")
	for _, s := range r.Secrets {
		t.line(s.Name, strconv.FormatBool(s.Held), moment(s.Item.NotAfter), s.Failure.Reason)
	}
}

func (t tables) clusters(r seen) {
	if len(r.Clusters) == 0 {
		return
	}
	t.head("CLUSTER", "STATE", "SECRETS", "FROM", "PROBLEM")
	for _, c := range r.Clusters {
		from := c.Source
		if c.Local {
			from = "local"
		}
		t.line(c.ID, string(c.State), strconv.Itoa(c.Secrets), from, strings.Join(slices.Concat([]string{c.Fault}, c.Refused), " "))
	}
	for _, n := range r.Unknown {
		t.line(n.ID, "unknown", "", "", n.Setting+" names it, and no kubeconfig has it")
	}
}

func (t tables) watched(r seen) {
	if r.Watched == nil {
		return
	}
	t.head("WATCHED IN", "KIND", "VALID", "EXPIRING", "EXPIRED", "MALFORMED", "FIRST EXPIRY")
	for _, c := range r.Watched.Counts {
		t.line(c.Cluster, c.Kind, strconv.Itoa(c.Valid), strconv.Itoa(c.Ending), strconv.Itoa(c.Expired), strconv.Itoa(c.Malformed), moment(c.FirstExpiry))
	}
	if len(r.Watched.Troubled) == 0 {
		return
	}
	t.head("TO FIX", "CLUSTER", "KIND", "STATE", "EXPIRES", "PROBLEM")
	for _, s := range r.Watched.Troubled {
		t.line(s.Object, s.Cluster, s.Kind, string(s.State), moment(s.Ends), s.Problem)
	}
	if r.Watched.More > 0 {
		t.line(fmt.Sprintf("%d more", r.Watched.More))
	}
}

func (t tables) kubernetes(r seen) {
	if r.Kubernetes == nil {
		return
	}
	t.head("KUBERNETES", "COUNT")
	for _, row := range r.Kubernetes.Rows() {
		t.line(row.Name, strconv.FormatUint(row.Count, 10))
	}
}

func (t tables) trustDomains(r seen) {
	if len(r.TrustDomains) == 0 {
		return
	}
	t.head("TRUST DOMAIN", "ROOTS", "FROM", "FETCHED", "PROBLEM")
	for _, d := range r.TrustDomains {
		t.line(d.Name, strconv.Itoa(d.Roots), d.From, moment(d.Fetched), d.Problem)
	}
}

func (t tables) folder(r seen) {
	if r.Folder == nil {
		return
	}
	t.head("FILE", "STATE", "RESOURCES", "PROBLEM")
	if r.Folder.Fault != "" {
		t.line(r.Folder.Path, "", "", r.Folder.Fault)
	}
	for _, f := range r.Folder.Files {
		t.line(f.Name, string(f.State), strconv.Itoa(f.Resources), strings.Join(slices.Concat([]string{f.Reason}, f.Warnings), " "))
	}
}

func (t tables) streams(r seen) {
	t.head("STREAM", "CALLER", "CLUSTER", "NODE", "TYPE", "NAMES", "SENT", "ACCEPTED", "REJECTED")
	for _, s := range r.Server.Streams {
		for _, of := range s.Types {
			refused := ""
			if of.Refused != nil {
				refused = moment(of.Refused.At) + " " + of.Refused.Version + " " + of.Refused.Reason
			}
			if of.Refused != nil && !of.Refusing() {
				refused = "(accepted a later version) " + refused
			}
			t.line(strconv.FormatUint(s.Number, 10), s.Identity, s.Cluster, s.Node, of.Type[strings.LastIndexAny(of.Type, "./")+1:], strconv.Itoa(of.Subscribed),
				of.Sent, of.Acked, refused)
		}
	}
}
