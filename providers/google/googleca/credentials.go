package googleca

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	privateca "cloud.google.com/go/security/privateca/apiv1"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	grpccreds "google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	// connectTimeout leaves time for another try if the server does not respond.
	connectTimeout = 5 * time.Second
	// maxTrailer bounds the details of an error, in bytes.
	maxTrailer = 64 << 10
)

// clientOptions returns the client library's options for the settings.
func clientOptions(s Settings) ([]option.ClientOption, error) {
	opts := []option.ClientOption{
		option.WithTelemetryDisabled(),
		// Otherwise an environment variable makes it log requests and tokens.
		option.WithLogger(slog.New(slog.DiscardHandler)),
	}
	dial, err := dialOptions(s)
	if err != nil {
		return nil, err
	}
	for _, opt := range dial {
		opts = append(opts, option.WithGRPCDialOption(opt))
	}
	if s.Endpoint != "" {
		opts = append(opts, option.WithEndpoint(s.Endpoint))
	}
	if s.UniverseDomain != "" {
		opts = append(opts, option.WithUniverseDomain(s.UniverseDomain))
	}
	if s.Credentials == Token {
		// Each call has its own: see [pool.callOptions].
		return append(opts, option.WithoutAuthentication()), nil
	}
	if s.QuotaProject != "" {
		opts = append(opts, option.WithQuotaProject(s.QuotaProject))
	}
	creds, err := credentialsOf(s)
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "credentials %s: %w", s.Credentials, err)
	}
	return append(opts, option.WithAuthCredentials(creds)), nil
}

// dialOptions returns the options of a connection, which always uses TLS.
func dialOptions(s Settings) ([]grpc.DialOption, error) {
	opts := []grpc.DialOption{
		// Otherwise DNS could configure retries and deadlines.
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxTrailer),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
	}
	config, err := setting.TLS{RootFile: string(s.RootFile)}.Config()
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "root_file: %w", err)
	}
	return append(opts, grpc.WithTransportCredentials(grpccreds.NewTLS(config))), nil
}

// fileTypes are the accepted types of credentials files.
var fileTypes = []credentials.CredType{credentials.ServiceAccount, credentials.ExternalAccount, credentials.ImpersonatedServiceAccount, credentials.AuthorizedUser}

// credentialsOf finds the credentials of the connection.
func credentialsOf(s Settings) (*auth.Credentials, error) {
	opts := &credentials.DetectOptions{
		Scopes: privateca.DefaultAuthScopes(), UseSelfSignedJWT: true, Logger: slog.New(slog.DiscardHandler),
		Client: &http.Client{Transport: provider.NewTransport(nil)},
	}
	if s.Credentials == ADC {
		found, err := credentials.DetectDefault(opts)
		if err != nil {
			return nil, err
		}
		return classified(found), nil
	}
	text, err := s.CredentialsFile.Read()
	if err != nil {
		return nil, err
	}
	var file struct{ Type credentials.CredType }
	// Without the decoder's error, which may quote the file and its key.
	if json.Unmarshal(text, &file) != nil || !slices.Contains(fileTypes, file.Type) {
		return nil, fmt.Errorf("%s is not a credentials file: want JSON with a type of %q", s.CredentialsFile, fileTypes)
	}
	found, err := credentials.NewCredentialsFromJSON(file.Type, text, opts)
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid credentials file of type %s", s.CredentialsFile, file.Type)
	}
	return classified(found), nil
}

// bearer is the credential of one call. gRPC sends it over TLS only, which
// RequireTransportSecurity demands.
type bearer struct {
	token        ca.Token
	quotaProject string
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	metadata := map[string]string{"authorization": "Bearer " + b.token.Reveal()}
	if b.quotaProject != "" {
		metadata["x-goog-user-project"] = b.quotaProject
	}
	return metadata, nil
}

func (b bearer) RequireTransportSecurity() bool { return true }
