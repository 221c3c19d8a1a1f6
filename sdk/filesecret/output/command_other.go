//go:build !unix

package output

import "os/exec"

// ownGroup does nothing: the command alone is killed here, not its children.
func ownGroup(*exec.Cmd) {}
