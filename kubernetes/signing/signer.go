package signing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/countersign-dev/countersign/ra"
)

// maxName is the API server's limit for a signer name, in bytes: a domain of 253, a slash, and a
// path that fits a namespace and a name.
const maxName = 253 + 1 + 63 + 1 + 253

// CheckName returns an error if name is not a signer name, or is reserved for Kubernetes: a signer
// for kubernetes.io/kube-apiserver-client can issue certificates of administrators. It applies
// the API server's rules (k8s.io/kubernetes, ValidateSignerName): a domain of two labels
// or more, a slash, and a path of lower-case labels.
func CheckName(name string) error {
	domain, path, slash := strings.Cut(name, "/")
	switch {
	case len(name) > maxName:
		return fmt.Errorf("the signer name %.64q… has %d bytes, %d are allowed", name, len(name), maxName)
	case !slash || !isDomain(domain) || !isPath(path):
		return fmt.Errorf("%.256q is not a signer name: use <domain>/<name>, such as example.com/workloads, in lower case", name)
	case domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"):
		return fmt.Errorf("the signer name %.256q is reserved for Kubernetes: use a domain of your own", name)
	}
	return nil
}

func isDomain(domain string) bool {
	labels := strings.Split(domain, ".")
	for _, label := range labels {
		if len(validation.IsDNS1123Label(label)) > 0 {
			return false
		}
	}
	return len(labels) > 1 && len(domain) <= validation.DNS1123SubdomainMaxLength
}

func isPath(path string) bool {
	for label := range strings.SplitSeq(path, ".") {
		if len(validation.IsDNS1123Subdomain(label)) > 0 {
			return false
		}
	}
	return true
}

const (
	// minPodLifetime and maxPodLifetime are the API server's bounds for a pod certificate,
	// the backdating included.
	minPodLifetime = time.Hour
	maxPodLifetime = 91 * 24 * time.Hour
	// maxBackdating is less than the 5 minutes by which a pod certificate may differ from
	// the API server's clock when the status is written: the rest is for the way there.
	maxBackdating = 5*time.Minute - 30*time.Second
	// minCSRLifetime is the least that a CertificateSigningRequest can ask for.
	minCSRLifetime = 10 * time.Minute
)

// podKeys are the types of keys that pod certificates have (certificates.k8s.io/v1,
// PodCertificateRequestSpec).
var podKeys = []string{"rsa-3072", "rsa-4096", "ecdsa-p256", "ecdsa-p384", "ecdsa-p521", "ed25519"}

// PodDoor returns the engine's door for a signer's PodCertificateRequests. A kubelet's CSR is
// empty, so the authority must certify the names of the request.
func PodDoor(signer string) ra.Door {
	return ra.Door{
		Name: "pod-certificates/" + signer, NoNames: true,
		MinLifetime: minPodLifetime, MaxLifetime: maxPodLifetime, MaxBackdating: maxBackdating, KeyTypes: slices.Clone(podKeys),
	}
}

// CSRDoor returns the engine's door for a signer's CertificateSigningRequests.
func CSRDoor(signer string) ra.Door {
	return ra.Door{Name: "certificate-requests/" + signer, MinLifetime: minCSRLifetime}
}
