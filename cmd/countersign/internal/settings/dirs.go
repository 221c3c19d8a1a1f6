package settings

import (
	"os"

	"github.com/countersign-dev/countersign/cmd/internal/environ"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// SearchDirs is where providers are looked for, these folders first.
func SearchDirs(env environ.Vars, first []string) []string {
	executable, _ := os.Executable() // where it is not known, its folder is not searched
	return pluginhost.DefaultDirs(pluginhost.Search{
		ProviderDirs: first, ProviderPath: env.Get("COUNTERSIGN_PROVIDER_PATH"),
		Executable: executable, DataHome: env.Get("XDG_DATA_HOME"), Home: env.Get("HOME"),
	})
}
