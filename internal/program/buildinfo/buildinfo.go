// Package buildinfo tells what the running binary is made of: [This].
package buildinfo

import (
	"runtime"
	"runtime/debug"
)

// version is set by the linker for a release.
var version = "0.1.0-dev"

// Info is what a binary is made of.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// This is the binary that runs.
func This() Info {
	b := Info{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	return b
}
