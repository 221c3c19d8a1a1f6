// Package owned keeps objects of Kubernetes that other clients may change as well. A [Loop] keeps one
// object. The caller of many, which chooses their order and rate, uses its parts: a [Claim] decides
// whether an object is ours to change, a [Write] changes it, a [Pace] decides when to write again.
//
// An object is missing, ours, foreign or disputed. Ours bears the label [ManagedBy], or is one that was
// written since the claim was made, whatever became of its labels. A foreign one is left alone unless
// it may be adopted. One that another client keeps changing is disputed: it is restored more and more
// slowly.
package owned

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/text"
)

// The label of objects that are ours. Manager is also our field manager.
const (
	ManagedBy = "app.kubernetes.io/managed-by"
	Manager   = "countersign-ra"
)

// The reasons why an object is not as it should be.
var (
	ErrNotWritten = errors.New("not written yet")
	ErrAltered    = errors.New("the API server stored something else than was written: does an admission webhook change it?")
	ErrForeign    = fmt.Errorf("it exists and is not ours: stop what writes it, and delete it, hand it over with the label %s=%s, or, if it is for a mesh, allow its adoption", ManagedBy, Manager)
)

// Claim is the right to change one object. The zero Claim is ready.
type Claim struct{ uid types.UID }

// Took records the object that was written, or found to be ours; empty, if none is.
func (c *Claim) Took(uid types.UID) { c.uid = uid }

// Owns reports whether an object is ours to change: it bears our label, or was written by this claim.
func (c *Claim) Owns(uid types.UID, labelled bool) bool {
	return labelled || c.uid != "" && c.uid == uid
}

// Labelled reports whether labels have ours.
func Labelled(labels map[string]string) bool { return labels[ManagedBy] == Manager }

// Refused reports whether the API server answered and rejected a write. If it does not answer, the
// owner of the object is not the reason.
func Refused(err error) bool {
	if errors.Is(err, ErrAltered) {
		return true
	}
	code := int32(0)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code = status.Status().Code
	}
	if code == http.StatusInternalServerError { // that of a webhook has a reason, etcd's faults have none
		return apierrors.ReasonForError(err) == metav1.StatusReasonInternalError
	}
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout && code != http.StatusUnauthorized
}

// Rival returns the field manager besides us that was the last to write a field; any field, if it is
// empty. A client that deletes leaves no name.
func Rival(managed []metav1.ManagedFieldsEntry, field string) string {
	var last metav1.ManagedFieldsEntry
	for _, m := range managed {
		if m.Manager == Manager || field != "" && (m.FieldsV1 == nil || !bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:`+field+`"`))) {
			continue
		}
		if last.Time == nil || m.Time != nil && last.Time.Before(m.Time) {
			last = m
		}
	}
	return text.Clean(last.Manager)
}
