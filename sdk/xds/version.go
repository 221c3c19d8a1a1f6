package xds

import (
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/version"
)

// VersionOf returns the version of a response, derived from its content so that it is
// the same on every stream and after a restart. It is empty for no content, as before
// the first response.
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
