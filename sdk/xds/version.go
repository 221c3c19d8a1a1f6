package xds

import (
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/version"
)

// VersionOf returns the version of a response: that of its content, so that it
// means the same on every stream and after a restart. Without content it is empty, as it
// was before the first.
func VersionOf(resources []*Resource) string {
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
	return version.Of([]byte(strings.Join(lines, "\n")))
}
