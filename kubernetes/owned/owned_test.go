package owned

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/internal/rotation"
)

func TestAnswerDecidesWhetherAWriteIsRefused(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for _, row := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewForbidden(resource, "a", errors.New("no")), true},
		{apierrors.NewInvalid(schema.GroupKind{}, "a", nil), true},
		{apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		{fmt.Errorf("roots: %w", ErrAltered), true},
		{apierrors.NewConflict(resource, "a", errors.New("changed")), true},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}}, false},
		{apierrors.NewTooManyRequests("slower", 1), false},
		{apierrors.NewServiceUnavailable("away"), false},
		{apierrors.NewTimeoutError("slow", 1), false},
		{apierrors.NewUnauthorized("who are you"), false},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusRequestTimeout}}, false},
		{errors.New("connection refused"), false},
		{context.DeadlineExceeded, false},
	} {
		if got := Refused(row.err); got != row.want {
			t.Errorf("%v: %t, want %t", row.err, got, row.want)
		}
	}
}

func TestClaimOwnsWhatIsLabelledOrWritten(t *testing.T) {
	var c Claim
	if c.Owns("", false) || c.Owns("1", false) || !c.Owns("1", true) {
		t.Error("a new claim owns what bears the label, and no other object")
	}
	c.Took("1")
	if !c.Owns("1", false) || c.Owns("2", false) {
		t.Error("a claim owns what it wrote, and no other object")
	}
}

func TestLastOtherWriterIsTheRival(t *testing.T) {
	at := func(s int64) *metav1.Time { m := metav1.Unix(s, 0); return &m }
	roots := metav1.NewFieldsV1(`{"f:data":{"f:root-cert.pem":{}}}`)
	managed := []metav1.ManagedFieldsEntry{
		{Manager: "old", Time: at(1), FieldsV1: roots}, {Manager: "pilot-discovery", Time: at(3), FieldsV1: roots},
		{Manager: Manager, Time: at(5), FieldsV1: roots}, {Manager: "kubectl", Time: at(4), FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:x":{}}}`)},
	}
	if got := Rival(managed, "root-cert.pem"); got != "pilot-discovery" {
		t.Errorf("of the roots: %q", got)
	}
	if got := Rival(managed, ""); got != "kubectl" {
		t.Errorf("of any field: %q", got)
	}
	if got := Rival(nil, ""); got != "" {
		t.Errorf("without entries: %q", got)
	}
}

func TestPaceSlowsDownUntilThereIsPeace(t *testing.T) {
	rules := &Rules{Faults: rotation.Row{First: time.Second, Most: time.Minute}, Repairs: rotation.Row{First: time.Second, Most: 10 * time.Minute}, Peace: 20 * time.Minute}
	var p Pace
	now := time.Unix(1e9, 0)
	if p.Wait(now, true) != 0 {
		t.Error("the first write waits")
	}
	for range 20 {
		p.Repaired(rules, now)
		if p.Wait(now, false) != 0 {
			t.Error("a write that is not a repair waits for one")
		}
		now = now.Add(p.Wait(now, true))
	}
	if wait := p.Repaired(rules, now); wait < 7*time.Minute || wait > 10*time.Minute || !p.Disputed() {
		t.Errorf("after 21 repairs: %s, disputed: %t", wait, p.Disputed())
	}
	for range 10 {
		p.Failed(rules, now)
	}
	if wait := p.Wait(now, false); wait < 45*time.Second || wait > time.Minute {
		t.Errorf("after 10 faults: %s", wait)
	}
	p.Right()
	if p.Wait(now, false) != 0 {
		t.Error("faults are remembered after a success")
	}
	if left := p.Calm(rules, now.Add(19*time.Minute)); left != time.Minute || !p.Fought() {
		t.Errorf("peace is to last for %s more", left)
	}
	if left := p.Calm(rules, now.Add(20*time.Minute)); left != 0 || p.Fought() || p.Disputed() || p.Wait(now, true) != 0 {
		t.Error("repairs are slow after peace")
	}
}
