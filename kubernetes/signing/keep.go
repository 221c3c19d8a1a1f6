package signing

import (
	"bytes"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/ra"
)

// KeepCSR returns a copy of a CSR to keep while its request waits. Of one that is longer than
// [ra.MaxCSR] it is only the beginning, which the engine refuses as too long.
func KeepCSR(csr []byte) []byte { return bytes.Clone(csr[:min(len(csr), ra.MaxCSR+1)]) }

// Keep returns a copy of a text to keep while its request waits, or of its first max bytes.
func Keep[T ~string](text T, max int) T { return T(strings.Clone(string(text[:min(len(text), max)]))) }

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
