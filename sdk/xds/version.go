package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// versionOf returns the version of a response: that of its content, so that it
// means the same on every stream and after a restart. Without content it is empty, as it
// was before the first.
func versionOf(resources []*Resource) string {
	switch len(resources) {
	case 0:
		return ""
	case 1:
		return resources[0].Version
	}
	lines := make([]string, len(resources))
	for i, r := range resources {
		lines[i] = strconv.Quote(r.Name) + " " + strconv.Quote(r.Version)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:8])
}
