package citadelca

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	// DefaultAddress is the address of istiod in a default installation.
	DefaultAddress = "istiod.istio-system.svc:15012"
	// DefaultRootFile is where Istio mounts the root that verifies istiod.
	DefaultRootFile = "./var/run/secrets/istio/root-cert.pem"
	// SystemRoots in place of a file name means the roots of the operating system.
	SystemRoots = setting.SystemRoots

	localName     = "istiod.istio-system.svc"
	plaintextPort = "15010"
)

// Settings say where the authority is, how to verify it and what to send with each request.
// The fields with a JSON name are the provider's settings.
type Settings struct {
	// Address is host:port. Port 15010, istiod's plaintext port, is used without TLS. Default:
	// [DefaultAddress].
	Address string `json:"address,omitempty" address:"host:port" jsonschema:"host:port of the CA; port 15010 means plaintext (default istiod.istio-system.svc:15012)"`
	// RootFile is a PEM file with the roots that verify the authority, read for each
	// connection; or [SystemRoots]. Default: [DefaultRootFile].
	RootFile string `json:"root_file,omitempty" jsonschema:"PEM file with the roots that verify the CA's server, or SYSTEM for those of the operating system (default ./var/run/secrets/istio/root-cert.pem)"`
	// ServerName is the name that the authority's certificate must have. Default: the host of
	// Address, or istiod.istio-system.svc if that is localhost.
	ServerName string `json:"server_name,omitempty" jsonschema:"name that the server's certificate must have (default the host of address; for localhost istiod.istio-system.svc)"`
	// ClusterID is sent as gRPC metadata "ClusterID". Default: none.
	ClusterID string `json:"cluster_id,omitempty" jsonschema:"cluster of the workload, sent as gRPC metadata ClusterID (default none)"`
	// CertSigner is the signer that istiod forwards the request to. Default: none.
	CertSigner string `json:"cert_signer,omitempty" jsonschema:"signer that istiod forwards requests to (default none)"`
	// Headers are additional gRPC metadata of each call. Default: none.
	Headers map[string]string `json:"headers,omitempty" jsonschema:"additional gRPC metadata of each call (default none)" secret:"true"`
	// ClientCertFile is a client certificate with its chain, ClientKeyFile its key. Both are PEM
	// and read for each handshake. Default: none.
	ClientCertFile string `json:"client_cert_file,omitempty" jsonschema:"PEM file with the client certificate and its chain, read for each handshake (default none)"`
	ClientKeyFile  string `json:"client_key_file,omitempty" jsonschema:"PEM file with the client certificate's key (default none)"`
	// AllowTokenOverPlaintext allows tokens and Headers to be sent to port 15010. Default:
	// false.
	AllowTokenOverPlaintext bool `json:"allow_token_over_plaintext,omitempty" jsonschema:"send the token and headers without TLS, too, where anyone on the network can read it (default false)"`

	// Log gets warnings. Default: none.
	Log *slog.Logger `json:"-"`
}

// Validate checks the settings without access to files or the network. The error has the
// reason [ca.Invalid].
func (s Settings) Validate() error {
	if _, err := s.endpoint(); err != nil {
		return err
	}
	if err := s.pair().Check("client_cert_file", "client_key_file"); err != nil {
		return ca.Errorf(ca.Invalid, "%w", err)
	}
	if !printable(s.ClusterID) {
		return ca.Errorf(ca.Invalid, "cluster_id is %.256q: metadata is printable ASCII only", s.ClusterID)
	}
	if e, _ := s.endpoint(); e.plaintext && len(s.Headers) > 0 && !s.AllowTokenOverPlaintext {
		return ca.Errorf(ca.Invalid, "headers may hold credentials and would be sent in plaintext to %s: use port 15012, or set allow_token_over_plaintext", e.address)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if err := checkHeader(name, s.Headers[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkHeader returns an error without the value, which may be a credential.
func checkHeader(name, value string) error {
	low := strings.ToLower(name)
	switch {
	case low == "" || strings.ContainsFunc(low, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.", r) }):
		return ca.Errorf(ca.Invalid, "headers has %.256q: a name has letters, digits, '-', '_' and '.' only", name)
	case low == "authorization":
		return ca.Errorf(ca.Invalid, "headers has %.256q: the token comes with each request, from the agent's token source", name)
	case low == "clusterid":
		return ca.Errorf(ca.Invalid, "headers has %.256q: set cluster_id instead", name)
	case strings.HasPrefix(low, "grpc-") || low == "content-type" || low == "te" || low == "user-agent":
		return ca.Errorf(ca.Invalid, "headers has %.256q: the name is reserved for gRPC", name)
	case !strings.HasSuffix(low, "-bin") && !printable(value):
		return ca.Errorf(ca.Invalid, "headers.%s: the value is not printable ASCII: use a name that ends in -bin", low)
	}
	return nil
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

func (s Settings) pair() setting.KeyPair {
	return setting.KeyPair{CertFile: s.ClientCertFile, KeyFile: s.ClientKeyFile}
}

// endpoint is the address of the authority and the name that its certificate must have.
type endpoint struct {
	address, serverName string
	plaintext           bool
}

func (s Settings) endpoint() (endpoint, error) {
	s.Address = cmp.Or(s.Address, DefaultAddress)
	host, port, err := net.SplitHostPort(s.Address)
	if number, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || number == 0 || host == "" || strings.ContainsAny(host, "/ ") {
		return endpoint{}, ca.Errorf(ca.Invalid, "address is %.256q: write host:port, such as %s", s.Address, DefaultAddress)
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

// metadata returns the metadata of each call, without its token.
func (s Settings) metadata() metadata.MD {
	md := metadata.New(s.Headers)
	if s.ClusterID != "" {
		md.Set("ClusterID", s.ClusterID)
	}
	return md
}
