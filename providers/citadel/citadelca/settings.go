package citadelca

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	// DefaultAddress is istiod's in a mesh as Istio installs it.
	DefaultAddress = "istiod.istio-system.svc:15012"
	// DefaultRootFile is where Istio mounts the root that istiod's own certificate
	// leads to.
	DefaultRootFile = "./var/run/secrets/istio/root-cert.pem"
	// SystemRoots in the place of a file means the operating system's roots.
	SystemRoots = rest.SystemRoots

	localName     = "istiod.istio-system.svc"
	plaintextPort = "15010"
)

// Settings say where the authority is, how it is verified and what it is told
// besides the request. The fields with a JSON name are the provider's settings.
type Settings struct {
	// Address is host:port. The port 15010 is istiod's without TLS. Default:
	// [DefaultAddress].
	Address string `json:"address,omitempty" jsonschema:"host:port of the CA; port 15010 means plaintext (default istiod.istio-system.svc:15012)"`
	// RootFile is a PEM file with the roots that the authority's own certificate
	// leads to, read for each connection; or [SystemRoots]. Default:
	// [DefaultRootFile].
	RootFile string `json:"root_file,omitempty" jsonschema:"PEM file with the roots to verify the CA's server with, or SYSTEM for the operating system's (default ./var/run/secrets/istio/root-cert.pem)"`
	// ServerName is what the authority's certificate must name. Default: the host
	// of Address, or istiod.istio-system.svc where that is localhost.
	ServerName string `json:"server_name,omitempty" jsonschema:"name that the server's certificate must have (default the host of address; for localhost istiod.istio-system.svc)"`
	// ClusterID is sent as the metadata ClusterID. Default: none.
	ClusterID string `json:"cluster_id,omitempty" jsonschema:"cluster that the workload runs in, sent as the metadata ClusterID (default none)"`
	// CertSigner names a signer that istiod forwards to. Default: none.
	CertSigner string `json:"cert_signer,omitempty" jsonschema:"signer that istiod is to forward to (default none)"`
	// Headers are further metadata of each call. Default: none.
	Headers map[string]string `json:"headers,omitempty" jsonschema:"further gRPC metadata of each call (default none)"`
	// ClientCertFile and ClientKeyFile are the client certificate, PEM with what
	// stands above it, and its key; read at each handshake. Default: none.
	ClientCertFile string `json:"client_cert_file,omitempty" jsonschema:"PEM file with the client certificate and what stands above it, read at each handshake (default none)"`
	ClientKeyFile  string `json:"client_key_file,omitempty" jsonschema:"PEM file with the client certificate's key (default none)"`
	// AllowTokenOverPlaintext lets a token go to port 15010. Default: false.
	AllowTokenOverPlaintext bool `json:"allow_token_over_plaintext,omitempty" jsonschema:"send the token without TLS, too, where anybody on the way can read it (default false)"`

	// Log takes what is found while the authority is used. Default: silent.
	Log *slog.Logger `json:"-"`
}

// Validate checks the settings without looking at a file or the network. The error
// is of the reason [ca.Invalid].
func (s Settings) Validate() error {
	if _, err := s.endpoint(); err != nil {
		return err
	}
	if (s.ClientCertFile == "") != (s.ClientKeyFile == "") {
		return ca.Errorf(ca.Invalid, "client_cert_file is %q and client_key_file is %q: set both or neither", clip(s.ClientCertFile), clip(s.ClientKeyFile))
	}
	if !printable(s.ClusterID) {
		return ca.Errorf(ca.Invalid, "cluster_id is %q: metadata has printable ASCII only", clip(s.ClusterID))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if err := checkHeader(name, s.Headers[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkHeader says what is wrong without the value, which may be a credential.
func checkHeader(name, value string) error {
	low := strings.ToLower(name)
	switch {
	case low == "" || strings.ContainsFunc(low, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.", r) }):
		return ca.Errorf(ca.Invalid, "headers has %q: a name has letters, digits, '-', '_' and '.' only", clip(name))
	case low == "authorization":
		return ca.Errorf(ca.Invalid, "headers has %q: the token comes with each request, from the agent", clip(name))
	case low == "clusterid":
		return ca.Errorf(ca.Invalid, "headers has %q: set cluster_id", clip(name))
	case strings.HasPrefix(low, "grpc-") || low == "content-type" || low == "te" || low == "user-agent":
		return ca.Errorf(ca.Invalid, "headers has %q: that name is gRPC's own", clip(name))
	case !strings.HasSuffix(low, "-bin") && !printable(value):
		return ca.Errorf(ca.Invalid, "headers.%s: its value has a character that is not printable ASCII; a name that ends in -bin may have any", low)
	}
	return nil
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// clip bounds foreign text; %q does the escaping.
func clip(text string) string {
	if len(text) > 256 {
		return text[:256] + "…"
	}
	return text
}

// endpoint is where the authority is and what its certificate must name.
type endpoint struct {
	address, serverName string
	plaintext           bool
}

func (s Settings) endpoint() (endpoint, error) {
	if s.Address == "" {
		s.Address = DefaultAddress
	}
	host, port, err := net.SplitHostPort(s.Address)
	if number, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || number == 0 || host == "" || strings.ContainsAny(host, "/ ") {
		return endpoint{}, ca.Errorf(ca.Invalid, "address is %q: write host:port, such as %s", clip(s.Address), DefaultAddress)
	}
	e := endpoint{address: s.Address, serverName: host, plaintext: port == plaintextPort}
	switch {
	case s.ServerName != "":
		e.serverName = s.ServerName
	case host == "localhost":
		e.serverName = localName
	}
	return e, nil
}

// metadata is what each call says besides its token.
func (s Settings) metadata() metadata.MD {
	md := metadata.New(s.Headers)
	if s.ClusterID != "" {
		md.Set("ClusterID", s.ClusterID)
	}
	return md
}
