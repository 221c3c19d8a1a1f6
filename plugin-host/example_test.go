package pluginhost_test

import (
	"context"
	"fmt"
	"log/slog"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// A provider's process as the client of an agent.
func ExampleOpen() {
	ctx := context.Background()
	provider, err := pluginhost.Open(ctx, pluginhost.Options{
		Dirs: pluginhost.DefaultDirs(pluginhost.Search{}), Log: slog.Default(),
	}, pluginhost.Entry{
		Name: "mesh", Provider: "citadel",
		SHA256:   "3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855e", // of the binary
		Settings: map[string]any{"address": "istiod.istio-system:15012"},
	})
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	var client ca.Client = provider // for secret.Authority
	_ = client
}

// Where binaries are looked for, by what main read from flags and environment.
func ExampleDefaultDirs() {
	for _, dir := range pluginhost.DefaultDirs(pluginhost.Search{ProviderDirs: []string{"/opt/providers"}, Home: "/home/me"}) {
		fmt.Println(dir)
	}
	// Output:
	// /opt/providers
	// /home/me/.local/share/countersign/providers
	// /usr/lib/countersign/providers
}
