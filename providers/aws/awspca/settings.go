package awspca

import (
	"cmp"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/acmpca/types"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// The values of Credentials.
const (
	Chain = "chain" // the SDK's chain: variables, AWS configuration files, the machine's role
	Keys  = "keys"  // AccessKeyID and SecretAccessKey
	Token = "token" // the token of each request, exchanged
)

// Settings say which CA signs and how to call it. The fields with a JSON name are the
// provider's settings.
type Settings struct {
	// CAARN is the ARN of the CA, which also has its region. Required.
	CAARN string `json:"ca_arn" address:"text" pattern:"^arn:aws[a-z-]*:acm-pca:[a-z]{2}[a-z0-9-]+-[0-9]:[0-9]{12}:certificate-authority/[0-9A-Za-z-]+$" jsonschema:"ARN of the CA that signs, arn:aws:acm-pca:REGION:ACCOUNT:certificate-authority/ID; its region is called"`
	// Template is the certificate template. Default: EndEntityCertificate/V1 for a CSR with the
	// names of its request, EndEntityCertificate_APIPassthrough/V1 for any other.
	Template string `json:"template,omitempty" jsonschema:"certificate template for all requests (default EndEntityCertificate/V1 for a CSR with the names of its request, EndEntityCertificate_APIPassthrough/V1 for any other)"`
	// SigningAlgorithm is the algorithm of the signatures. Default: by the CA's key.
	SigningAlgorithm string `json:"signing_algorithm,omitempty" jsonschema:"signing algorithm, such as SHA384WITHRSA (default by the CA's key, with SHA-256 for RSA)"`
	// RootsInterval is how often the CA's chain is fetched, give or take a tenth. Default: 5m.
	RootsInterval time.Duration `json:"roots_interval,omitempty" jsonschema:"how often to fetch the CA's chain, such as 10m (default 5m)"`

	// Endpoint and STSEndpoint are the URLs of the services. Default: AWS's in the region.
	Endpoint    setting.URL `json:"endpoint,omitzero" jsonschema:"URL of AWS Private CA, for a FIPS or VPC endpoint (default AWS's in the CA's region)"`
	STSEndpoint setting.URL `json:"sts_endpoint,omitzero" jsonschema:"URL of the token service for assume_role and exchange (default AWS's in the CA's region)"`
	// RootFile is a PEM file with the roots that verify the services, read for each connection.
	// Default: the operating system's roots.
	RootFile setting.File `json:"root_file,omitempty" jsonschema:"PEM file with the roots that verify the services, read for each connection (default those of the operating system)"`

	// Credentials are [Chain], [Keys] or [Token]. Default: Token with an Exchange, Keys with an
	// AccessKeyID, else Chain.
	Credentials string `json:"credentials,omitempty" jsonschema:"chain for the AWS SDK's chain, keys for access_key_id, or token for the token of each request (default token with exchange, keys with access_key_id, else chain)"`
	// AccessKeyID, SecretAccessKey and SessionToken are the credentials of [Keys].
	AccessKeyID     string `json:"access_key_id,omitempty" jsonschema:"ID of an access key"`
	SecretAccessKey string `json:"secret_access_key,omitempty" secret:"true" jsonschema:"the access key's secret"`
	SessionToken    string `json:"session_token,omitempty" secret:"true" jsonschema:"session token of temporary keys (default none)"`
	// ConfigFile and Profile say where [Chain] looks. Default: ~/.aws/config and
	// ~/.aws/credentials, and the profile "default".
	ConfigFile setting.File `json:"config_file,omitempty" jsonschema:"AWS configuration file to read instead of ~/.aws/config and ~/.aws/credentials"`
	Profile    string       `json:"profile,omitempty" jsonschema:"profile in the AWS configuration files (default AWS_PROFILE, else default)"`
	// AssumeRole is a role to take on with these credentials, as in the CA's account. Default:
	// none.
	AssumeRole *AssumeRole `json:"assume_role,omitempty" jsonschema:"role to assume with these credentials, as one of the CA's account (default none)"`
	// Exchange exchanges the token of each request first. Default: none.
	Exchange *Exchange `json:"exchange,omitempty" jsonschema:"exchange the token of each request for temporary credentials (default none)"`

	// Log gets warnings. Default: none.
	Log *slog.Logger `json:"-"`
}

// AssumeRole is a role that other credentials may take on.
type AssumeRole struct {
	// RoleARN is the role. Required.
	RoleARN string `json:"role_arn" jsonschema:"ARN of the role"`
	// ExternalID is what the role's trust policy may require. Default: none.
	ExternalID string `json:"external_id,omitempty" jsonschema:"external ID that the role's trust policy requires (default none)"`
	// SessionName is in the audit log of the role's account. Default: countersign.
	SessionName string `json:"session_name,omitempty" jsonschema:"name of the session in CloudTrail (default countersign)"`
}

// Exchange configures how to exchange the tokens of workloads.
type Exchange struct {
	// RoleARN is the role whose trust policy takes the tokens. Required.
	RoleARN string `json:"role_arn" jsonschema:"ARN of the role whose trust policy accepts the tokens"`
	// SessionName is in the audit log. Default: countersign.
	SessionName string `json:"session_name,omitempty" jsonschema:"name of the session in CloudTrail (default countersign)"`
}

const (
	defaultInterval = 5 * time.Minute
	minInterval     = 10 * time.Second // as each agent calls the service that often
	sessionName     = "countersign"
)

// The service checks lengths.
var (
	authorityPattern = regexp.MustCompile(`^arn:(aws[a-z-]*):acm-pca:([a-z]{2}[a-z0-9-]+-[0-9]):[0-9]{12}:certificate-authority/[0-9A-Za-z-]+$`)
	rolePattern      = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[!-~]+$`)
	templatePattern  = regexp.MustCompile(`^(Blank)?EndEntity[A-Za-z]*Certificate(_[A-Za-z]+)*/V[0-9]+$`)
	sessionPattern   = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
	keyIDPattern     = regexp.MustCompile(`^\w{16,128}$`)
)

// authorityARN is the ARN of a CA.
type authorityARN struct{ text, partition, region string }

func parseARN(text string) (authorityARN, bool) {
	found := authorityPattern.FindStringSubmatch(text)
	if found == nil {
		return authorityARN{}, false
	}
	return authorityARN{text, found[1], found[2]}, true
}

func (a authorityARN) template(name string) string {
	return "arn:" + a.partition + ":acm-pca:::template/" + name
}

// withDefaults fills in the defaults that depend on other settings.
func (s Settings) withDefaults() Settings {
	s.RootsInterval = cmp.Or(s.RootsInterval, defaultInterval)
	switch {
	case s.Credentials != "":
	case s.Exchange != nil:
		s.Credentials = Token
	case s.AccessKeyID != "":
		s.Credentials = Keys
	default:
		s.Credentials = Chain
	}
	return s
}

// Validate checks the settings without access to files or the network. The error has the
// reason [ca.Invalid].
func (s Settings) Validate() error {
	s = s.withDefaults()
	algorithms := slices.Concat(types.SigningAlgorithm("").Values(), slices.Sorted(maps.Values(postQuantum)))
	switch _, ok := parseARN(s.CAARN); {
	case !ok:
		return ca.Errorf(ca.Invalid, "ca_arn is %.256q: write arn:aws:acm-pca:REGION:ACCOUNT:certificate-authority/ID", s.CAARN)
	case s.Template != "" && !templatePattern.MatchString(s.Template):
		return ca.Errorf(ca.Invalid, "template is %.256q: write the name of a template for end entities, such as EndEntityCertificate/V1, without arn:", s.Template)
	case s.SigningAlgorithm != "" && !slices.Contains(algorithms, types.SigningAlgorithm(s.SigningAlgorithm)):
		return ca.Errorf(ca.Invalid, "signing_algorithm is %.256q: want one of %q", s.SigningAlgorithm, algorithms)
	case s.RootsInterval < minInterval:
		return ca.Errorf(ca.Invalid, "roots_interval is %s: want a duration of at least %s, such as %s", s.RootsInterval, minInterval, defaultInterval)
	}
	if err := s.checkCredentials(); err != nil {
		return err
	}
	return s.checkRoles()
}

func (s Settings) checkCredentials() error {
	switch {
	case s.Credentials != Chain && s.Credentials != Keys && s.Credentials != Token:
		return ca.Errorf(ca.Invalid, "credentials is %.256q: want chain, keys or token", s.Credentials)
	case (s.Credentials == Token) != (s.Exchange != nil):
		return ca.Errorf(ca.Invalid, "credentials is %q: set it to token exactly if there is an exchange block, which makes credentials of a token", s.Credentials)
	case s.Credentials == Keys && (!keyIDPattern.MatchString(s.AccessKeyID) || s.SecretAccessKey == ""):
		return ca.Errorf(ca.Invalid, "access_key_id is %.256q: credentials keys needs the ID of a key, and secret_access_key", s.AccessKeyID)
	case s.Credentials != Keys && s.AccessKeyID+s.SecretAccessKey+s.SessionToken != "":
		return ca.Errorf(ca.Invalid, "access_key_id, secret_access_key and session_token are for credentials keys; credentials is %q", s.Credentials)
	case s.Credentials != Chain && (s.ConfigFile != "" || s.Profile != ""):
		return ca.Errorf(ca.Invalid, "config_file and profile are for credentials chain; credentials is %q", s.Credentials)
	case s.STSEndpoint.Host != "" && s.AssumeRole == nil && s.Exchange == nil:
		return ca.Errorf(ca.Invalid, "sts_endpoint is set, but neither assume_role nor exchange is")
	}
	return nil
}

func (s Settings) checkRoles() error {
	for _, role := range s.roles() {
		switch {
		case !rolePattern.MatchString(role.arn):
			return ca.Errorf(ca.Invalid, "%s.role_arn is %.256q: write arn:aws:iam::ACCOUNT:role/NAME", role.setting, role.arn)
		case role.session != "" && !sessionPattern.MatchString(role.session):
			return ca.Errorf(ca.Invalid, "%s.session_name is %.256q: want 2 to 64 letters, digits and +=,.@_-", role.setting, role.session)
		}
	}
	return nil
}

type namedRole struct{ setting, arn, session string }

func (s Settings) roles() (all []namedRole) {
	if r := s.AssumeRole; r != nil {
		all = append(all, namedRole{"assume_role", r.RoleARN, r.SessionName})
	}
	if x := s.Exchange; x != nil {
		all = append(all, namedRole{"exchange", x.RoleARN, x.SessionName})
	}
	return all
}
