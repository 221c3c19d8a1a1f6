package text

import (
	"errors"
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes: "512", "64Ki", "10Mi", "1Gi", the same with a B.
func ParseSize(text string) (int64, error) {
	number, shift := strings.TrimSuffix(text, "B"), 0
	for i, unit := range []string{"Ki", "Mi", "Gi"} {
		if n, ok := strings.CutSuffix(number, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(number, 10, 63-shift)
	if err != nil {
		return 0, errors.New("not a number of bytes")
	}
	return int64(n) << shift, nil //nolint:gosec // it has 63 bits at most
}
