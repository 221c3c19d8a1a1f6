package main

import (
	"context"

	meshapi "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/cmd/pilot-agent/config"
	"istio.io/istio/pilot/cmd/pilot-agent/options"
	"istio.io/istio/pkg/config/constants"
	"istio.io/istio/pkg/envoy"
	istioagent "istio.io/istio/pkg/istio-agent"
	"istio.io/istio/pkg/model"
	"istio.io/istio/pkg/security"
	"istio.io/istio/security/pkg/nodeagent/sds"
)

// agent runs what `pilot-agent proxy sidecar` does, all but Envoy: its citadel client, its cache
// and its SDS server, below the working directory.
func agent(ctx context.Context) error {
	settings, err := config.ConstructProxyConfig("", constants.ServiceClusterName, options.ProxyConfigEnv, 0)
	if err != nil {
		return err
	}
	proxy := options.NewProxyArgs()
	proxy.Type, proxy.IPAddresses, proxy.ID, proxy.DNSDomain = model.SidecarProxy, []string{"127.0.0.1"}, "pod.shop", "shop.svc.cluster.local"
	secrets, err := options.NewSecurityOptions(settings, 0, "")
	if err != nil {
		return err
	}
	defer secrets.CredFetcher.Stop()
	serve := func(o *security.Options, cache security.SecretManager, keys *meshapi.PrivateKeyProvider) istioagent.SDSService {
		return sds.NewServer(o, cache, keys)
	}
	made := istioagent.NewAgent(settings, options.NewAgentOptions(&proxy, settings, serve), secrets, envoy.ProxyConfig{TestOnly: true})
	defer made.Close()
	if _, err := made.Run(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
