package ra

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// maxAttribute bounds each attribute of a subject, in bytes. A Kubernetes object's name has
// 253 at most.
const maxAttribute = 253

// Kind is the type of a subject, such as [Pod].
type Kind string

// The kinds of subjects.
const (
	Pod            Kind = "pod"             // a pod, known by its UID
	ServiceAccount Kind = "service_account" // a service account, wherever it runs
	Node           Kind = "node"
	User           Kind = "user"      // a user of a cluster's API, by name
	Namespace      Kind = "namespace" // a namespace: all that may create requests in it
)

var kinds = []Kind{Pod, ServiceAccount, Node, User, Namespace}

// Subject is who a certificate is for. Its door has verified each attribute that is set,
// and leaves all others empty; nothing that a pod, or the node that runs it, only claims
// (labels, addresses, annotations) has a place here.
type Subject struct {
	Kind              Kind   `json:"kind"`
	Cluster           string `json:"cluster"` // whose API server vouches for the rest
	Namespace         string `json:"namespace,omitempty"`
	ServiceAccount    string `json:"service_account,omitempty"`
	ServiceAccountUID string `json:"service_account_uid,omitempty"`
	Pod               string `json:"pod,omitempty"`
	PodUID            string `json:"pod_uid,omitempty"`
	Node              string `json:"node,omitempty"`
	NodeUID           string `json:"node_uid,omitempty"`
	User              string `json:"user,omitempty"`

	// Verified is the method of verification for the audit log, such as "token review".
	Verified string `json:"verified,omitempty"`
}

// attributes are those that a rule may match and a template may use.
var attributes = map[string]func(Subject) string{
	"kind":              func(s Subject) string { return string(s.Kind) },
	"cluster":           func(s Subject) string { return s.Cluster },
	"namespace":         func(s Subject) string { return s.Namespace },
	"serviceAccount":    func(s Subject) string { return s.ServiceAccount },
	"serviceAccountUID": func(s Subject) string { return s.ServiceAccountUID },
	"pod":               func(s Subject) string { return s.Pod },
	"podUID":            func(s Subject) string { return s.PodUID },
	"node":              func(s Subject) string { return s.Node },
	"nodeUID":           func(s Subject) string { return s.NodeUID },
	"user":              func(s Subject) string { return s.User },
}

// chosenAttributes are names that tenants choose. Operators name clusters, nodes and users, and the
// API server makes the UIDs.
var chosenAttributes = []string{"namespace", "serviceAccount", "pod"}

// needs are the attributes that identify a subject of each kind.
var needs = map[Kind][]string{
	Pod:            {"namespace", "serviceAccount", "pod", "podUID"},
	ServiceAccount: {"namespace", "serviceAccount"},
	Node:           {"node"},
	User:           {"user"},
	Namespace:      {"namespace"},
}

// check returns an error if the door left out what its kind needs, or let through what is
// too long.
func (s Subject) check() error {
	switch {
	case !slices.Contains(kinds, s.Kind):
		return fmt.Errorf("a subject of kind %.64q is not known: use one of %q", s.Kind, kinds)
	case s.Cluster == "":
		return errors.New("the subject has no cluster")
	case len(s.Verified) > maxAttribute:
		return fmt.Errorf("how the subject was verified takes %d bytes, %d are allowed", len(s.Verified), maxAttribute)
	}
	for name, of := range attributes {
		if size := len(of(s)); size > maxAttribute {
			return fmt.Errorf("the subject's %s has %d bytes, %d are allowed", name, size, maxAttribute)
		}
	}
	for _, name := range needs[s.Kind] {
		if attributes[name](s) == "" {
			return fmt.Errorf("a subject of kind %q needs its %s", s.Kind, name)
		}
	}
	return nil
}

// String returns the subject for an error or a log: its kind and its names.
func (s Subject) String() string {
	var names []string
	for _, name := range []string{s.Namespace, s.ServiceAccount, s.Pod, s.Node, s.User} {
		if name != "" {
			names = append(names, name)
		}
	}
	return fmt.Sprintf("%s %.256q in cluster %.256q", s.Kind, strings.Join(names, "/"), s.Cluster)
}

// bounded returns the subject fit for the audit log, whatever its attributes are.
func (s Subject) bounded() Subject {
	for _, field := range []*string{
		(*string)(&s.Kind), &s.Cluster, &s.Namespace, &s.ServiceAccount, &s.ServiceAccountUID,
		&s.Pod, &s.PodUID, &s.Node, &s.NodeUID, &s.User, &s.Verified,
	} {
		*field = text.Clean(*field)
	}
	return s
}

// tenant identifies a namespace of a cluster, or all of its nodes or users, for fair queueing.
func (s Subject) tenant() string {
	if s.Namespace == "" {
		return s.Cluster + "//" + string(s.Kind)
	}
	return s.Cluster + "/" + s.Namespace
}

// holder is who holds one certificate of a rule at a time: a pod, or a service account on a
// node. It identifies the holder in little memory.
type holder [16]byte

func (s Subject) holder(rule string) holder {
	return holder(digest(rule, string(s.Kind), s.Cluster, s.Namespace, s.ServiceAccount, s.PodUID, s.Node, s.User))
}

// setHolder sets who holds the certificate. A namespace chooses its names itself, and each set of
// names is a holder.
func (o *Order) setHolder() {
	whole := o.Subject.holder(o.decision.Rule)
	o.holder, o.repeats = whole, whole
	switch {
	case o.Subject.Kind == Namespace:
		o.holder = holder(digest(append(o.decision.Identity.Names(), string(whole[:]))...))
		o.repeats, o.subject = o.holder, whole
	case o.Holder != "":
		o.holder = holder(digest(o.Holder, string(whole[:])))
		if o.WithinSubject {
			o.subject = whole
		}
	}
}

// digest hashes the parts, so that no two lists of parts give the same hash.
func digest(parts ...string) (sum [16]byte) {
	text := make([]byte, 0, 512) // most fit, and need no memory of their own
	for _, part := range parts {
		text = binary.BigEndian.AppendUint64(text, uint64(len(part)))
		text = append(text, part...)
	}
	whole := sha256.Sum256(text)
	copy(sum[:], whole[:])
	return sum
}

// requestID is a UUID (RFC 9562, version 8) made of what identifies a request, so that an
// authority that recognizes repeats makes one certificate, also over a restart.
func requestID(parts ...string) string {
	id := digest(parts...)
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}
