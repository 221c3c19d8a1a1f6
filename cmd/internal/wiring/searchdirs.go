package wiring

import (
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/cmd/internal/environ"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// SearchDirs returns the folders to search for providers, first those given.
func SearchDirs(env environ.Vars, first []string) []string {
	return pluginhost.DefaultDirs(pluginhost.Search{
		ProviderDirs: first, ProviderPath: env.Get("COUNTERSIGN_PROVIDER_PATH"),
		Executable: executable(), DataHome: env.Get("XDG_DATA_HOME"), Home: env.Get("HOME"),
	})
}

// executable returns the path of this program. "countersign discovery" and "countersign ra"
// run a copy in memory, without a path, and pass the path as the first argument.
func executable() string {
	if filepath.IsAbs(os.Args[0]) {
		return os.Args[0]
	}
	path, _ := os.Executable() // if unknown, its folder is not searched
	return path
}
