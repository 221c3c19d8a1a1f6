package settings

import (
	"cmp"
	"os"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// SearchDirs is where providers are looked for, these folders first.
func SearchDirs(first []string) []string {
	executable, _ := os.Executable() // where it is not known, its folder is not searched
	return pluginhost.DefaultDirs(pluginhost.Search{
		ProviderDirs: first, ProviderPath: os.Getenv("COUNTERSIGN_PROVIDER_PATH"),
		Executable: executable, DataHome: os.Getenv("XDG_DATA_HOME"), Home: os.Getenv("HOME"),
	})
}

// RuntimeDir is where sockets of providers are made; empty: the system's folder for
// temporary files.
func RuntimeDir(configured string) string {
	return cmp.Or(configured, os.Getenv("XDG_RUNTIME_DIR"))
}
