package status

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
)

// Mesh is what is written for a mesh in a cluster.
type Mesh struct {
	Roots  *MeshRoots `json:"roots,omitempty"`
	Istiod *Istiod    `json:"istiod,omitempty"`
}

// MeshRoots is the state of the ConfigMaps istio-ca-root-cert.
type MeshRoots struct {
	Authority  string   `json:"authority"`
	Roots      []string `json:"roots,omitempty"` // fingerprints
	Namespaces int      `json:"namespaces"`
	Lacking    int      `json:"lacking,omitempty"` // of them do not have these roots
	// Left are namespaces that no new root waits for, as others keep their ConfigMap from having the
	// roots.
	Left []string `json:"left,omitempty"`
	// Away: no new root waits for the whole cluster, as it cannot be reached, and its pods get
	// certificates only once it has the roots.
	Away bool `json:"away,omitempty"`
	// Disputed is in how many namespaces another client keeps writing, such as Rival.
	Disputed int    `json:"disputed,omitempty"`
	Rival    string `json:"rival,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Istiod is the state of the Secret istiod-tls.
type Istiod struct {
	Authority   string    `json:"authority"`
	Namespace   string    `json:"namespace"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	NotAfter    time.Time `json:"not_after,omitzero"`
	Rival       string    `json:"rival,omitempty"` // keeps writing it, too
	Error       string    `json:"error,omitempty"`
}

// problems returns the problems of a mesh in a cluster.
func (m *Mesh) problems(cluster string) (all []problem) {
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

func (r *MeshRoots) problems(cluster string) []problem {
	switch {
	case r.Away:
		return []problem{{
			Grade: bad, What: fmt.Sprintf("Cluster %s is left behind: no new root of %s waits for it", cluster, r.Authority), Detail: r.Error,
			Do: "Its running pods refuse peers with certificates below a new root. Restore the connection: its namespaces are written before its pods are served again.",
		}}
	case len(r.Left) > 0:
		return []problem{{
			Grade: bad, What: fmt.Sprintf("Namespaces of %s are left behind: no new root of %s waits for them", cluster, r.Authority), Detail: leftBehind(r.Left) + ": " + r.Error,
			Do: fmt.Sprintf("Pods there refuse peers with certificates below a new root. Stop what writes or protects their ConfigMap %s, or leave the namespaces out of mesh.roots.namespaces and reload.", meshroots.Name),
		}}
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

// leftBehind names some namespaces.
func leftBehind(all []string) string {
	const named = 5
	if more := len(all) - named; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:named], ", "), more)
	}
	return strings.Join(all, ", ")
}

func (t tables) mesh(r Report) {
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
