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

// KeepDistinct returns the first n different texts, as [Keep] does.
func KeepDistinct[T ~string](all []T, n, max int) (kept []T) {
	for _, one := range all {
		if one = Keep(one, max); len(kept) < n && !slices.Contains(kept, one) {
			kept = append(kept, one)
		}
	}
	return kept
}
