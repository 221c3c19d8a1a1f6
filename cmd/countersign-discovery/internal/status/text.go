package status

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
)

// seen is the part of a [Report] that the command prints.
type seen struct {
	daemon.Process
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
	TrustDomains []TrustDomain  `json:"trust_domains"`
	Clusters     []fleet.Status `json:"clusters"`

	Unknown    []config.ClusterName `json:"unknown_clusters"`
	Kubernetes *Kubernetes          `json:"kubernetes"`
	Watched    *Watched             `json:"watched_secrets"`
	Folder     *folder.Status       `json:"folder"`
}

// Command returns "status".
func Command() *cobra.Command {
	return daemon.Status("countersign-discovery", "Show the state of a running service: streams, clusters, files and trust domains", write)
}

// write prints one table for each part of the report.
func write(w io.Writer, r seen) error {
	state := "ready"
	if r.Server.NotReady != "" {
		state = "not ready: " + r.Server.NotReady
	}
	if r.Server.Draining {
		state = "shutting down"
	}
	fmt.Fprintf(w, "countersign-discovery %s, %s\n", r.Build.Version, state)
	if _, err := r.WriteTo(w); err != nil {
		return err
	}
	t := tables{daemon.NewTables(w)}
	t.secrets(r)
	t.clusters(r)
	t.watched(r)
	t.kubernetes(r)
	t.trustDomains(r)
	t.folder(r)
	t.streams(r)
	return t.Flush()
}

// tables prints the parts of the report.
type tables struct{ daemon.Tables }

func (t tables) secrets(r seen) {
	t.Head("SECRET", "HELD", "EXPIRES", "FAILURE")
	for _, s := range r.Secrets {
		t.Line(s.Name, strconv.FormatBool(s.Held), daemon.Moment(s.Item.NotAfter), s.Failure.Reason)
	}
}

func (t tables) clusters(r seen) {
	if len(r.Clusters) == 0 {
		return
	}
	t.Head("CLUSTER", "STATE", "SECRETS", "FROM", "PROBLEM")
	for _, c := range r.Clusters {
		from := c.Source
		if c.Local {
			from = "local"
		}
		t.Line(c.ID, string(c.State), strconv.Itoa(c.Secrets), from, strings.Join(slices.Concat([]string{c.Fault}, c.Refused), " "))
	}
	for _, n := range r.Unknown {
		t.Line(n.ID, "unknown", "", "", n.Setting+" names it, and no kubeconfig has it")
	}
}

func (t tables) watched(r seen) {
	if r.Watched == nil {
		return
	}
	t.Head("WATCHED IN", "KIND", "VALID", "EXPIRING", "EXPIRED", "MALFORMED", "FIRST EXPIRY")
	for _, c := range r.Watched.Counts {
		t.Line(c.Cluster, c.Kind, strconv.Itoa(c.Valid), strconv.Itoa(c.Ending), strconv.Itoa(c.Expired), strconv.Itoa(c.Malformed), daemon.Moment(c.FirstExpiry))
	}
	if len(r.Watched.Troubled) == 0 {
		return
	}
	t.Head("TO FIX", "CLUSTER", "KIND", "STATE", "EXPIRES", "PROBLEM")
	for _, s := range r.Watched.Troubled {
		t.Line(s.Object, s.Cluster, s.Kind, string(s.State), daemon.Moment(s.Ends), s.Problem)
	}
	if r.Watched.More > 0 {
		t.Line(fmt.Sprintf("%d more", r.Watched.More))
	}
}

func (t tables) kubernetes(r seen) {
	if r.Kubernetes == nil {
		return
	}
	t.Head("KUBERNETES", "COUNT")
	for _, row := range r.Kubernetes.Rows() {
		t.Line(row.Name, strconv.FormatUint(row.Count, 10))
	}
}

func (t tables) trustDomains(r seen) {
	if len(r.TrustDomains) == 0 {
		return
	}
	t.Head("TRUST DOMAIN", "ROOTS", "FROM", "FETCHED", "PROBLEM")
	for _, d := range r.TrustDomains {
		t.Line(d.Name, strconv.Itoa(d.Roots), d.From, daemon.Moment(d.Fetched), d.Problem)
	}
}

func (t tables) folder(r seen) {
	if r.Folder == nil {
		return
	}
	t.Head("FILE", "STATE", "RESOURCES", "PROBLEM")
	if r.Folder.Fault != "" {
		t.Line(r.Folder.Path, "", "", r.Folder.Fault)
	}
	for _, f := range r.Folder.Files {
		t.Line(f.Name, string(f.State), strconv.Itoa(f.Resources), strings.Join(slices.Concat([]string{f.Reason}, f.Warnings), " "))
	}
}

func (t tables) streams(r seen) {
	t.Head("STREAM", "CALLER", "CLUSTER", "NODE", "TYPE", "NAMES", "SENT", "ACCEPTED", "REJECTED")
	for _, s := range r.Server.Streams {
		for _, of := range s.Types {
			refused := ""
			if of.Refused != nil {
				refused = daemon.Moment(of.Refused.At) + " " + of.Refused.Version + " " + of.Refused.Text()
			}
			if of.Refused != nil && !of.Refusing() {
				refused = "(accepted a later version) " + refused
			}
			t.Line(strconv.FormatUint(s.Number, 10), s.Identity, s.Cluster, s.Node, of.Type[strings.LastIndexAny(of.Type, "./")+1:], strconv.Itoa(of.Subscribed),
				of.Sent, of.Acked, refused)
		}
	}
}
