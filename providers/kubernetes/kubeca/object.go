package kubeca

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

const (
	// managedBy marks the objects of this provider, so that leftovers are found.
	managedBy   = "app.kubernetes.io/managed-by"
	managerName = "countersign-provider-kubernetes"
	// leastSeconds is the shortest lifetime that a CertificateSigningRequest may ask for.
	leastSeconds = 600
	// failurePause is how long to wait after a failure of the signer, which is final for the
	// object: a repeat makes a new one.
	failurePause = time.Minute
	// approvalPause is how long to wait before asking again for a request without approval.
	approvalPause = 30 * time.Second
)

// object is a CertificateSigningRequest or a CertificateRequest: what the provider needs of
// both.
type object struct {
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
	Status     status   `json:"status,omitzero"`
}

type metadata struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Created         time.Time         `json:"creationTimestamp,omitzero"`
}

type spec struct {
	Request []byte   `json:"request"` // PEM
	Usages  []string `json:"usages"`

	// Of a CertificateSigningRequest.
	SignerName        string `json:"signerName,omitempty"`
	ExpirationSeconds int32  `json:"expirationSeconds,omitempty"`

	// Of a CertificateRequest.
	Issuer   *issuerRef `json:"issuerRef,omitempty"`
	Duration string     `json:"duration,omitempty"`
}

type issuerRef struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Group string `json:"group"`
}

type status struct {
	Certificate []byte      `json:"certificate,omitempty"` // PEM, leaf first
	CA          []byte      `json:"ca,omitempty"`          // PEM, of a CertificateRequest
	Conditions  []condition `json:"conditions,omitempty"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// order returns the object for a request. Its name is that of the request's ID and all that is
// asked, so that a repeat finds it, and nothing else.
func (s Settings) order(req ca.SignRequest) object {
	o := object{Spec: spec{Request: req.CSR, Usages: s.usages()}}
	if s.Issuer != nil {
		o.APIVersion, o.Kind = "cert-manager.io/v1", "CertificateRequest"
		o.Spec.Issuer = s.Issuer.ref()
		if req.TTL > 0 {
			o.Spec.Duration = req.TTL.Round(time.Second).String()
		}
	} else {
		o.APIVersion, o.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
		o.Spec.SignerName = s.SignerName
		if req.TTL > 0 {
			o.Spec.ExpirationSeconds = int32(min(max(req.TTL/time.Second, leastSeconds), math.MaxInt32)) //nolint:gosec // within both
		}
	}
	asked, _ := json.Marshal(o.Spec) // text and numbers
	sum := sha256.Sum256(append([]byte(req.ID+"\n"), asked...))
	o.Metadata = metadata{Name: "countersign-" + hex.EncodeToString(sum[:20]), Labels: map[string]string{managedBy: managerName}}
	return o
}

// asks reports whether the object asks for the same as another.
func (o object) asks(other object) bool { return reflect.DeepEqual(o.Spec, other.Spec) }

// is returns a condition with status True. Signers write their conditions themselves.
func (o object) is(kind string) (condition, bool) {
	for _, c := range o.Status.Conditions {
		if c.Type == kind && (c.Status == "True" || c.Status == "") {
			return c, true
		}
	}
	return condition{}, false
}

// ready is cert-manager's condition, whatever its status.
func (o object) ready() condition {
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			return c
		}
	}
	return condition{}
}

// issued reports whether the object has its certificate. cert-manager also sets a condition.
func (o object) issued() bool {
	return len(o.Status.Certificate) > 0 && (o.Spec.Issuer == nil || o.ready().Status == "True")
}

// refused returns what the object was refused with: nil while it is not.
func (o object) refused() error {
	ready := o.ready()
	if c, ok := o.is("Denied"); ok {
		return o.because(ca.Denied, "was denied", c)
	}
	if c, ok := o.is("InvalidRequest"); ok {
		return o.because(ca.Invalid, "is invalid", c)
	}
	if c, ok := o.is("Failed"); ok && c.Reason == "SignerValidationFailure" {
		return o.because(ca.Invalid, "does not fit its signer", c)
	} else if ok {
		return o.failed(c)
	}
	switch {
	case ready.Status == "False" && ready.Reason == "Denied":
		return o.because(ca.Denied, "was denied", ready)
	case ready.Status == "False" && ready.Reason == "Failed":
		return o.failed(ready)
	}
	return nil
}

// failed is not [ca.Invalid]: no condition states whether another try can succeed.
func (o object) failed(c condition) error {
	err := o.because(ca.Internal, "failed", c)
	err.RetryAfter = failurePause
	return err
}

func (o object) because(reason ca.Reason, what string, c condition) *ca.Error {
	return ca.Errorf(reason, "%s %s: %s", o, what, said(c))
}

// undecided is the error while the request is neither signed nor denied. A signer that does not
// sign what is approved may be away.
func (o object) undecided() error {
	reason, waits := ca.Pending, "waits for approval"
	if _, ok := o.is("Approved"); ok {
		reason, waits = ca.Unavailable, "is approved and waits for its signer"
		if ready := o.ready(); ready.Message != "" {
			waits += ": " + said(ready)
		}
	}
	err := ca.Errorf(reason, "%s %s", o, waits)
	err.RetryAfter = approvalPause
	return err
}

// String is the kind and the name, for messages.
func (o object) String() string { return fmt.Sprintf("the %s %s", o.Kind, o.Metadata.Name) }

// said is the text of a condition.
func said(c condition) string {
	text := c.Reason
	if c.Message != "" {
		text += ": " + c.Message
	}
	return provider.CleanText(text)
}
