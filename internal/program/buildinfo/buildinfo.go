// Package buildinfo identifies the running binary: [This].
package buildinfo

import (
	"crypto/fips140"
	"runtime"
	"runtime/debug"
	"strings"
)

// Info is what a binary is made of.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// FIPS is the version of Go's FIPS 140-3 module, where that is on.
	FIPS string `json:"fips,omitempty"`
}

// This is the binary that runs. Its version is what the go command recorded of the main
// module: the release or pseudo-version of `go install`, else devel.
func This() Info {
	b := Info{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if fips140.Enabled() {
		b.FIPS = fips140.Version()
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if version, known := strings.CutPrefix(info.Main.Version, "v"); known {
		b.Version = version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}
