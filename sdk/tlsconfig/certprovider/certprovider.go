// Package certprovider (experimental) gives gRPC programs without a proxy their certificates and
// roots. It registers the certificate provider "countersign" with grpc-go: import it beside
// [google.golang.org/grpc/xds], and name it in the xDS bootstrap.
//
//	"certificate_providers": {
//	  "default": {
//	    "plugin_name": "countersign",
//	    "config": {"workload_api": "unix:///run/spire/agent.sock"}
//	  }
//	}
//
// The config names one source: "workload_api", the unix socket of a SPIFFE Workload API, such as
// the agent's; "credential_folder", a folder of SPIFFE's standard for files; or "source", a name
// that the program has given to [Serve]. An empty config means what SPIFFE_ENDPOINT_SOCKET or else
// SPIFFE_CREDENTIAL_FOLDER names.
//
// Each handshake gets the current certificate and roots, and waits for them at the start. The
// roots of a source of SPIFFE are a map of trust domains, so that a peer is verified with the
// roots of its own. gRPC does not check revocation lists: do not rely on them here.
//
// Root or the program's own user must serve the socket. For another user, pass a spiresecret.Source
// with its UIDs and Federated to [Serve].
//
// A provider is safe for concurrent use. Providers of one config share a source, which is opened for
// the first of them. It ends after all are closed and gRPC has dropped the config (at a garbage
// collection): a gRPC server has a provider only while it has a connection. gRFC A29 and A87 describe
// the interface.
package certprovider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Name is the plugin_name in the xDS bootstrap.
const Name = "countersign"

// The names of the secrets where the control plane names none (certificate_name).
const (
	defaultPair  = "default"
	defaultRoots = "ROOTCA"
)

func init() { certprovider.Register(builder{}) }

// Serve makes a source available to the config {"source": name} until stop is called; providers
// that gRPC has built keep it. The program closes the source. An error means that the name is
// empty or taken.
func Serve(name string, source secret.Source) (stop func(), err error) {
	return sources.serve(name, source)
}

// config is that of one provider in the bootstrap.
type config struct {
	WorkloadAPI      string `json:"workload_api,omitempty"`
	CredentialFolder string `json:"credential_folder,omitempty"`
	Source           string `json:"source,omitempty"`
}

// builder is what grpc-go calls.
type builder struct{}

// Name implements [certprovider.Builder].
func (builder) Name() string { return Name }

// ParseConfig implements [certprovider.Builder]; its argument is a [json.RawMessage].
func (builder) ParseConfig(given any) (*certprovider.BuildableConfig, error) {
	text, ok := given.(json.RawMessage)
	if !ok {
		return nil, fmt.Errorf("certificate provider %s: the config is a %T, not JSON", Name, given)
	}
	c, err := parse(text)
	if err == nil && c.WorkloadAPI != "" {
		_, err = unixsocket.ParsePath(c.WorkloadAPI)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate provider %s: invalid config: %w", Name, err)
	}
	canonical, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return buildable(canonical, c), nil
}

// buildable keeps the source of a config that was built once until gRPC drops the config: a gRPC server
// builds its providers for each connection and closes them with it. Between two connections, a Workload
// API may be away, and what it sent must still be there.
func buildable(canonical []byte, c config) (out *certprovider.BuildableConfig) {
	var once sync.Once
	out = certprovider.NewBuildableConfig(Name, canonical, func(o certprovider.BuildOptions) certprovider.Provider {
		once.Do(func() {
			if s := sources.share(c); s != nil {
				runtime.AddCleanup(out, (*shared).release, s)
			}
		})
		return build(c, o)
	})
	return out
}

func parse(text []byte) (c config, err error) {
	if len(text) > 0 {
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&c); err != nil {
			return config{}, err
		}
	}
	if c == (config{}) {
		return fromEnvironment()
	}
	given := 0
	for _, one := range []string{c.WorkloadAPI, c.CredentialFolder, c.Source} {
		if one != "" {
			given++
		}
	}
	if given > 1 {
		return config{}, errors.New("name one of workload_api, credential_folder and source")
	}
	return c, nil
}

// fromEnvironment finds a source as the standard has it (SPIFFE Filesystem Delivery, section 3.1).
func fromEnvironment() (config, error) {
	if socket := os.Getenv("SPIFFE_ENDPOINT_SOCKET"); socket != "" {
		return config{WorkloadAPI: socket}, nil
	}
	if folder := os.Getenv("SPIFFE_CREDENTIAL_FOLDER"); folder != "" {
		return config{CredentialFolder: folder}, nil
	}
	return config{}, errors.New("name workload_api, credential_folder or source, or set SPIFFE_ENDPOINT_SOCKET or SPIFFE_CREDENTIAL_FOLDER")
}
