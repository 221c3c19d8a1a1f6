package settings

import (
	"os"
	"path/filepath"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// SearchDirs returns the folders to search for providers, as in the agent.
func SearchDirs(first []string) []string {
	return pluginhost.DefaultDirs(pluginhost.Search{
		ProviderDirs: first, ProviderPath: os.Getenv("COUNTERSIGN_PROVIDER_PATH"),
		Executable: executable(), DataHome: os.Getenv("XDG_DATA_HOME"), Home: os.Getenv("HOME"),
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
