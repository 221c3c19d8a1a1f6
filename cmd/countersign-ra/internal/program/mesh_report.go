package program

import (
	"fmt"
	"strconv"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
)

// meshReport is what is written for a mesh in a cluster.
type meshReport struct {
	Roots  *meshRootsReport `json:"roots,omitempty"`
	Istiod *istiodReport    `json:"istiod,omitempty"`
}

// meshRootsReport is the state of the ConfigMaps istio-ca-root-cert.
type meshRootsReport struct {
	Authority  string   `json:"authority"`
	Roots      []string `json:"roots,omitempty"` // fingerprints
	Namespaces int      `json:"namespaces"`
	Lacking    int      `json:"lacking,omitempty"` // of them do not have these roots
	// Disputed is in how many namespaces another client keeps writing, such as Rival.
	Disputed int    `json:"disputed,omitempty"`
	Rival    string `json:"rival,omitempty"`
	Error    string `json:"error,omitempty"`
}

// istiodReport is the state of the Secret istiod-tls.
type istiodReport struct {
	Authority   string    `json:"authority"`
	Namespace   string    `json:"namespace"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	NotAfter    time.Time `json:"not_after,omitzero"`
	Rival       string    `json:"rival,omitempty"` // keeps writing it, too
	Error       string    `json:"error,omitempty"`
}

func (m mesh) report() *meshReport {
	if m.roots == nil && m.istiod == nil {
		return nil
	}
	r := &meshReport{}
	if m.roots != nil {
		s := m.roots.Status()
		r.Roots = &meshRootsReport{s.Authority, s.Roots, s.Namespaces, s.Lacking, s.Disputed, s.Rival, s.Error}
	}
	if m.istiod != nil {
		s := m.istiod.Status()
		r.Istiod = &istiodReport{s.Authority, s.Namespace, s.Fingerprint, s.NotAfter, s.Rival, s.Error}
	}
	return r
}

// problems returns the problems of a mesh in a cluster.
func (m *meshReport) problems(cluster string) (all []problem) {
	if m == nil {
		return nil
	}
	if r := m.Roots; r != nil {
		all = append(all, r.problems(cluster)...)
	}
	if i := m.Istiod; i != nil && i.Error != "" {
		all = append(all, problem{
			Grade: bad, What: fmt.Sprintf("Secret %s/%s in %s is not as it should be", i.Namespace, istiodtls.Name, cluster), Detail: i.Error,
			Do: "An istiod that starts serves nothing without it, and one that runs serves until its certificate ends.",
		})
	}
	return all
}

func (r *meshRootsReport) problems(cluster string) []problem {
	switch {
	case r.Disputed > 0:
		said := fmt.Sprintf("in %d namespaces", r.Disputed)
		if r.Rival != "" {
			said += ", such as " + r.Rival
		}
		return []problem{{
			Grade: bad, What: fmt.Sprintf("Another client writes the ConfigMaps %s in %s, too", meshroots.Name, cluster), Detail: said,
			Do: "Disable one of the two writers: istiod's own CA with ENABLE_CA_SERVER=false, or mesh.roots here.",
		}}
	case r.Error != "":
		return []problem{{
			Grade: fair, What: fmt.Sprintf("ConfigMaps %s in %s are out of date", meshroots.Name, cluster), Detail: r.Error,
			Do: "No new root is used until all namespaces have it. Write it there, or leave the namespace out of mesh.roots.namespaces.",
		}}
	}
	return nil
}

func (t tables) mesh(r report) {
	first := true
	line := func(object, cluster, authority, state, said string) {
		if first {
			t.Head("MESH OBJECT", "CLUSTER", "AUTHORITY", "STATE", "ERROR")
		}
		first = false
		t.Line(object, cluster, authority, state, said)
	}
	for _, k := range r.Clusters {
		if k.Mesh == nil {
			continue
		}
		if m := k.Mesh.Roots; m != nil {
			line(meshroots.Name, k.ID, m.Authority, strconv.Itoa(m.Namespaces-m.Lacking)+" of "+strconv.Itoa(m.Namespaces)+" namespaces", m.Error)
		}
		if i := k.Mesh.Istiod; i != nil {
			line(i.Namespace+"/"+istiodtls.Name, k.ID, i.Authority, "until "+daemon.Moment(i.NotAfter), i.Error)
		}
	}
}
