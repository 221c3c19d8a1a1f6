package status

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
)

// Command returns "status".
func Command() *cobra.Command {
	return daemon.Status(config.Program, "Show the state of a running service: leader, queues, roots and clusters", Write)
}

// Write prints one table for each part of the report.
func Write(w io.Writer, r Report) error {
	fmt.Fprintf(w, "%s %s, %s\n", config.Program, r.Build.Version, r.Summary().Words)
	if _, err := r.WriteTo(w); err != nil {
		return err
	}
	t := tables{daemon.NewTables(w)}
	t.problems(r)
	t.authorities(r)
	t.roots(r)
	t.istio(r.Istio)
	t.sharing(r)
	t.providers(r)
	t.clusters(r)
	t.bundles(r)
	t.shut(r)
	t.mesh(r)
	return t.Flush()
}

// tables prints the parts of the report.
type tables struct{ daemon.Tables }

func (t tables) problems(r Report) {
	for i, p := range r.Problems() {
		if i == 0 {
			t.Head("PROBLEM", "ERROR")
		}
		t.Line(p.What, p.Detail)
	}
}

func (t tables) authorities(r Report) {
	for i, a := range r.Authorities {
		if i == 0 {
			t.Head("AUTHORITY", "WAITING", "IN FLIGHT", "RATE", "OF", "HELD FOR", "STOPPED RULES")
		}
		held := ""
		if a.HeldSeconds > 0 {
			held = fmt.Sprintf("%.0fs", a.HeldSeconds)
		}
		t.Line(a.Name, strconv.Itoa(a.Waiting), strconv.Itoa(a.InFlight), fmt.Sprintf("%.3g/s", a.Rate), fmt.Sprintf("%.3g/s", a.MostRate), held, strconv.Itoa(len(a.Stopped)))
	}
}

func (t tables) roots(r Report) {
	first := true
	for _, a := range r.Authorities {
		for _, root := range a.Roots {
			if first {
				t.Head("ROOT", "OF", "PHASE", "SINCE", "UNTIL", "EXPIRES")
			}
			first = false
			t.Line(root.Fingerprint, a.Name, root.Phase, daemon.Moment(root.Since), daemon.Moment(root.Until), daemon.Moment(root.NotAfter))
		}
	}
}

func (t tables) providers(r Report) {
	t.Head("PROVIDER", "STATE", "VERSION", "RESTARTS", "ERROR")
	for _, p := range r.Providers {
		t.Line(p.Name, p.State, p.Version, strconv.Itoa(p.Restarts), p.LastError)
	}
}

func (t tables) clusters(r Report) {
	t.Head("CLUSTER", "STATE", "FROM", "POD REQUESTS", "PROBLEM")
	for _, k := range r.Clusters {
		from, created := k.Source, ""
		if k.Local {
			from = "local"
		}
		if k.Protection != nil {
			created = k.Protection.State
		}
		t.Line(k.ID, string(k.State), from, created, cmp.Or(k.Fault, k.NotReady))
	}
}

func (t tables) bundles(r Report) {
	first := true
	for _, k := range r.Clusters {
		for _, b := range k.Bundles {
			if first {
				t.Head("TRUST BUNDLE", "CLUSTER", "SIGNER", "AUTHORITY", "ROOTS", "ERROR")
			}
			first = false
			t.Line(b.Object, k.ID, b.Signer, b.Of(), strconv.Itoa(len(b.Roots)), b.Error)
		}
	}
}
