// Command countersign-provider-cfssl has certificates signed by CFSSL.
package main

import (
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const version = "0.1.0"

type settings struct {
	URL     setting.URL `json:"url" jsonschema:"URL of the CFSSL server" schemes:"https,http"`
	Profile string      `json:"profile,omitempty" jsonschema:"signing profile (default the server's default)"`
	setting.TLS
}

func define() *provider.Definition {
	return provider.Define("cfssl", version, open).WithFacts(provider.Facts{FixedLifetime: true})
}

func main() { define().Serve() }
