package awspca

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// expiryWindow is how long before their end temporary credentials are replaced, as the SDK's own
// chain does.
const expiryWindow = 5 * time.Minute

// ownCredentials finds the credentials of the settings, which are fetched with the first call.
func (c *CA) ownCredentials(ctx context.Context) (*remembered, error) {
	creds, err := c.baseCredentials(ctx)
	if err != nil {
		return nil, err
	}
	if role := c.settings.AssumeRole; role != nil {
		creds = aws.NewCredentialsCache(c.assumed(creds, *role), func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = expiryWindow })
	}
	return &remembered{from: creds, name: c.arn.text}, nil
}

func (c *CA) baseCredentials(ctx context.Context) (aws.CredentialsProvider, error) {
	s := c.settings
	if s.Credentials == Keys {
		return fixed(aws.Credentials{AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey, SessionToken: s.SessionToken}), nil
	}
	options := []func(*config.LoadOptions) error{
		config.WithRegion(c.arn.region), config.WithHTTPClient(c.http), config.WithLogger(logging.Nop{}),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
	}
	if s.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(s.Profile))
	}
	if s.ConfigFile != "" {
		options = append(options, config.WithSharedConfigFiles([]string{string(s.ConfigFile)}), config.WithSharedCredentialsFiles([]string{}))
	}
	found, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, configFailure(err)
	}
	return found.Credentials, nil
}

// configFailure names what is missing. Other errors may quote a file with keys.
func configFailure(err error) error {
	if missing, ok := errors.AsType[config.SharedConfigProfileNotExistError](err); ok {
		return ca.Errorf(ca.Unavailable, "the AWS configuration has no profile %.256q", missing.Profile)
	}
	if unread, ok := errors.AsType[config.SharedConfigLoadError](err); ok {
		return ca.Errorf(ca.Unavailable, "the AWS configuration file %.256q cannot be read", unread.Filename)
	}
	return ca.Errorf(ca.Unavailable, "the AWS configuration is invalid, or names what does not fit together: look at its profile and the entry's env; in place of AWS_CA_BUNDLE, set root_file")
}

func fixed(creds aws.Credentials) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return creds, nil })
}

// tokenService returns a client of AWS's token service.
func (c *CA) tokenService(creds aws.CredentialsProvider) *sts.Client {
	return sts.New(sts.Options{
		Region: c.arn.region, BaseEndpoint: optional(c.settings.STSEndpoint), HTTPClient: c.http, Retryer: aws.NopRetryer{}, Credentials: creds,
	})
}

// assumed takes on the role with other credentials.
func (c *CA) assumed(creds aws.CredentialsProvider, role AssumeRole) aws.CredentialsProvider {
	return stscreds.NewAssumeRoleProvider(c.tokenService(creds), role.RoleARN, func(o *stscreds.AssumeRoleOptions) {
		o.RoleSessionName = cmp.Or(role.SessionName, sessionName)
		if role.ExternalID != "" {
			o.ExternalID = aws.String(role.ExternalID)
		}
	})
}

// remembered returns credentials and remembers the newest, to keep them out of errors. It
// separates a failure to fetch them from one to use them.
type remembered struct {
	from   aws.CredentialsProvider
	name   string // of the CA, for errors
	newest atomic.Pointer[aws.Credentials]
}

// Retrieve implements [aws.CredentialsProvider].
func (r *remembered) Retrieve(ctx context.Context) (aws.Credentials, error) {
	creds, err := r.from.Retrieve(ctx)
	if err != nil {
		return creds, credentialFailure(r.name, err, r.secrets())
	}
	r.newest.Store(&creds)
	return creds, nil
}

func (r *remembered) secrets() []ca.Token {
	if creds := r.newest.Load(); creds != nil {
		return secretsOf(*creds)
	}
	return nil
}

func secretsOf(creds aws.Credentials) []ca.Token {
	return []ca.Token{ca.Token(creds.SecretAccessKey), ca.Token(creds.SessionToken)}
}

// errorCode is what an error's code looks like, and no token does.
var errorCode = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// credentialFailure classifies the error of a token service. Any other source is away: a file
// or the machine's service may come later. Of a program, nothing is quoted but its failure,
// as its output has keys. Of a container's service, whose errors have no HTTP response, only
// the code is quoted: its message may have the token that the SDK sent.
func credentialFailure(name string, err error, hidden []ca.Token) error {
	said, answered := errors.AsType[smithy.APIError](err)
	switch {
	case answered && responseOf(err) != nil:
		return refusal(name+": credentials", err, hidden)
	case answered && errorCode.MatchString(said.ErrorCode()):
		return ca.Errorf(ca.Unavailable, "%s: credentials: the container's service refused them: %s", name, said.ErrorCode())
	case answered:
		return ca.Errorf(ca.Unavailable, "%s: credentials: the container's service refused them", name)
	}
	if ca.ReasonFor(err) == ca.Deadline {
		return ca.Errorf(ca.Deadline, "%s: the credentials were not fetched in time", name)
	}
	return ca.Errorf(ca.Unavailable, "%s: found no credentials: neither the entry's env, the profile of the AWS configuration nor the machine has any that work now", name)
}
