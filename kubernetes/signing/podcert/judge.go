package podcert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

// maxCSR is the API server's limit (k8s.io/kubernetes, MaxStubPKCS10RequestSize), in bytes.
const maxCSR = 10 << 10

// AnnotationDNSNames is the one key of unverifiedUserAnnotations that is known: DNS names for the
// certificate beside those of the rule, separated by commas, such as "a.example.org,
// b.example.org". The rule must allow each ([ra.Names], Requested). Anyone who may create
// pods can set it.
const AnnotationDNSNames = "countersign.dev/dns-names"

// maxAnnotation bounds its value, in bytes.
const maxAnnotation = 4 << 10

const (
	reasonKeyType     = certificatesv1.PodCertificateRequestConditionUnsupportedKeyType
	reasonAnnotations = certificatesv1.PodCertificateRequestConditionInvalidUserConfig
	reasonCSR         = "InvalidCertificateSigningRequest"
	reasonPolicy      = "NotPermitted"
	reasonPod         = "PodNotEligible"
	reasonMismatch    = "IdentityMismatch"
)

func denied(reason, format string, args ...any) error {
	return &signing.Refusal{Condition: certificatesv1.PodCertificateRequestConditionTypeDenied, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// failed is for a CSR that is wrong: a kubelet's never is.
func failed(format string, args ...any) error {
	return &signing.Refusal{Condition: certificatesv1.PodCertificateRequestConditionTypeFailed, Reason: reasonCSR, Message: fmt.Sprintf(format, args...)}
}

// judge checks the request alone and returns the DNS names that the pod's author requests. The engine
// reads the CSR.
func judge(r *request) (names []string, err error) {
	switch size := len(r.Spec.StubPKCS10Request); {
	case size == 0: // v1 does not show the pkixPublicKey that it has instead
		return nil, failed("the request has no stubPKCS10Request: the node's kubelet is older than Kubernetes 1.36, which is needed")
	case size > maxCSR:
		return nil, failed("the certificate signing request has more than %d bytes", maxCSR)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Spec.UnverifiedUserAnnotations)) {
		value := r.Spec.UnverifiedUserAnnotations[key]
		switch {
		case key != AnnotationDNSNames:
			return nil, denied(reasonAnnotations, "this signer does not know the annotation %.256q: remove it from userAnnotations of the pod's podCertificate volume", key)
		case len(value) > maxAnnotation:
			return nil, denied(reasonAnnotations, "the annotation %s has more than %d bytes", key, maxAnnotation)
		}
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, nil
}
