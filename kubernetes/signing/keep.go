package signing

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/ra"
)

// KeepCSR returns a copy of a CSR to keep while its request waits. Of one that is longer than
// [ra.MaxCSR] it is only the beginning, which the engine refuses as too long.
func KeepCSR(csr []byte) []byte { return bytes.Clone(csr[:min(len(csr), ra.MaxCSR+1)]) }

// Keep returns a copy of a text to keep while its request waits, or of its first max bytes.
func Keep[T ~string](text T, max int) T { return T(strings.Clone(string(text[:min(len(text), max)]))) }

const (
	sizeNote = "countersign.dev/size"
	// usualSize is more than a CSR has with a key of RSA 4096 and a dozen names.
	usualSize = 4 << 10
)

// NoteSize notes in what is kept of an object how many bytes of CSR it has, unless they are few: the CSR
// itself is read once the object is handled. client-go trims some objects twice, so that the object may
// have the note already; an owner who forges it can only make his object larger.
func NoteSize(kept, object metav1.Object, bytes int) {
	if bytes = max(bytes, noted(object)); bytes >= usualSize {
		kept.SetAnnotations(map[string]string{sizeNote: strconv.Itoa(bytes)})
	}
}

func noted(object metav1.Object) int {
	bytes, _ := strconv.Atoi(object.GetAnnotations()[sizeNote])
	return bytes
}

// Weight returns how many objects of the usual size need as much memory as one of which [NoteSize] noted the
// size, up to 9 for the longest CSR that is kept.
func Weight(kept metav1.Object) int {
	return 1 + min(max(0, noted(kept)), ra.MaxCSR)/usualSize
}

// KeepName keeps a name, a UID or the like: 256 bytes are more than any of Kubernetes has.
func KeepName[T ~string](name T) T { return Keep(name, 256) }

// KeepUsages returns the first 32 distinct usages, which is more than there are.
func KeepUsages[T ~string](all []T) (kept []T) {
	for _, usage := range all {
		if usage = KeepName(usage); len(kept) < 32 && !slices.Contains(kept, usage) {
			kept = append(kept, usage)
		}
	}
	return kept
}
