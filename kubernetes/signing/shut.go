package signing

import (
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/countersign-dev/countersign/internal/text"
)

// mostNamed is how many owners a state names.
const mostNamed = 10

// Shut is the state of a signer for whose requests no certificates are requested, as they could not be
// written.
type Shut struct {
	Signer string
	// Owners are the affected owners, the first 10 of them. Empty: all, as far as dry runs show.
	Owners []string
	Since  time.Time
	// Next is when one may try again, which costs a certificate.
	Next time.Time
	// Error is why the last write failed. Forbidden means that our account lacks a right.
	Error     string
	Forbidden bool
}

// Gates are the gates of signers, by their names.
type Gates map[string]*Gate

// Shut returns the state of the gates that are shut.
func (g Gates) Shut() (all []Shut) {
	for _, signer := range slices.Sorted(maps.Keys(g)) {
		if s, is := g[signer].state(); is {
			s.Signer = signer
			all = append(all, s)
		}
	}
	return all
}

// state reports whether the gate is shut for any owner that still asks, and its state.
func (g *Gate) state() (s Shut, is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, now := Shut{Error: g.fault, Forbidden: g.forbidden}, time.Now()
	for _, owner := range slices.Sorted(maps.Keys(g.faulty)) {
		f := g.faulty[owner]
		if !f.shut() || f.left(now) {
			continue
		}
		is = true
		if s.Since.IsZero() || f.since.Before(s.Since) {
			s.Since = f.since
		}
		if s.Next.IsZero() || f.next.Before(s.Next) {
			s.Next = f.next
		}
		if !g.general && len(s.Owners) < mostNamed {
			s.Owners = append(s.Owners, text.Clean(owner))
		}
	}
	return s, is
}

// note remembers why a write failed. The lock is held.
func (g *Gate) note(err error) {
	g.fault, g.forbidden = text.Clean(err.Error()), Forbidden(err)
}

// Forbidden reports whether the API server refused a write for a right that our account lacks. For the right to
// sign pod certificates it calls the request invalid (k8s.io/kubernetes, the strategy of PodCertificateRequests).
func Forbidden(err error) bool {
	status, is := errors.AsType[*apierrors.StatusError](err)
	if !is || status.ErrStatus.Details == nil {
		return apierrors.IsForbidden(err)
	}
	return apierrors.IsForbidden(err) || slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseType(field.ErrorTypeForbidden) && c.Field == "spec.signerName"
	})
}
