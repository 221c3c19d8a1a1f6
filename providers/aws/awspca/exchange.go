package awspca

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	typeJWT     = "urn:ietf:params:oauth:token-type:jwt"
	typeIDToken = "urn:ietf:params:oauth:token-type:id_token"
	// typeSession is the type of the token that is made of temporary credentials.
	typeSession = "urn:x-countersign:aws-session"
	// sessionPrefix marks such a token.
	sessionPrefix = "aws-session."
	// maxSession bounds such a token in bytes; a session token has some 1,000.
	maxSession = 32 << 10
)

var _ ca.TokenExchanger = (*CA)(nil)

// ExchangeToken implements [ca.TokenExchanger]. It exchanges a workload's token for temporary
// credentials of the role in Exchange (AssumeRoleWithWebIdentity), and with AssumeRole these
// for credentials of that role. The new token has them in base64, for requests of this
// provider. Without Exchange it is [ca.Invalid]. Errors contain no token.
func (c *CA) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	if err := c.settings.checkTokenRequest(req); err != nil {
		return ca.ExchangedToken{}, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	creds, err := c.session(ctx, req.SubjectToken)
	if gone(ctx) {
		return ca.ExchangedToken{}, ctx.Err()
	}
	if err != nil {
		return ca.ExchangedToken{}, refusal("token exchange", err, []ca.Token{req.SubjectToken})
	}
	if role := c.settings.AssumeRole; role != nil {
		further, err := c.assumed(fixed(creds), *role).Retrieve(ctx)
		if gone(ctx) {
			return ca.ExchangedToken{}, ctx.Err()
		}
		if err != nil {
			return ca.ExchangedToken{}, refusal("token exchange: assume_role", err, append(secretsOf(creds), req.SubjectToken))
		}
		creds = further
	}
	return tokenOf(creds)
}

func (s Settings) checkTokenRequest(req ca.TokenRequest) error {
	switch kind := cmp.Or(req.SubjectTokenType, typeJWT); {
	case s.Exchange == nil:
		return ca.Errorf(ca.Invalid, "token exchange: set exchange.role_arn in the provider's settings")
	case req.SubjectToken == "":
		return ca.Errorf(ca.Unauthenticated, "token exchange: no token to exchange")
	case kind != typeJWT && kind != typeIDToken:
		return ca.Errorf(ca.Invalid, "token exchange: subject_token_type is %.256q: AWS exchanges a JWT", kind)
	case req.Audience+req.Resource != "" || len(req.Scopes) > 0:
		return ca.Errorf(ca.Invalid, "token exchange: AWS takes no audience, resource or scopes: the token itself has the audience, sts.amazonaws.com")
	case req.RequestedType != "" && req.RequestedType != typeSession:
		return ca.Errorf(ca.Invalid, "token exchange: requested_token_type is %.256q: there is %s only", req.RequestedType, typeSession)
	}
	return nil
}

func (c *CA) session(ctx context.Context, token ca.Token) (aws.Credentials, error) {
	role := c.settings.Exchange
	reply, err := c.tokenService(aws.AnonymousCredentials{}).AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &role.RoleARN, RoleSessionName: aws.String(cmp.Or(role.SessionName, sessionName)), WebIdentityToken: aws.String(token.Reveal()),
	})
	if err != nil || reply.Credentials == nil {
		return aws.Credentials{}, err
	}
	got := reply.Credentials
	return aws.Credentials{
		AccessKeyID: aws.ToString(got.AccessKeyId), SecretAccessKey: aws.ToString(got.SecretAccessKey),
		SessionToken: aws.ToString(got.SessionToken), CanExpire: true, Expires: aws.ToTime(got.Expiration),
	}, nil
}

// session is the content of an exchanged token.
type session struct {
	ID    string `json:"id"`
	Key   string `json:"key"`
	Token string `json:"token"`
}

func tokenOf(creds aws.Credentials) (ca.ExchangedToken, error) {
	if !keyIDPattern.MatchString(creds.AccessKeyID) || creds.SecretAccessKey == "" || !creds.Expires.After(time.Now()) {
		return ca.ExchangedToken{}, ca.Errorf(ca.Internal, "token exchange: the reply has no credentials that last")
	}
	text, err := json.Marshal(session{creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken})
	if err != nil || len(text) > maxSession {
		return ca.ExchangedToken{}, ca.Errorf(ca.Internal, "token exchange: the reply's credentials are too long")
	}
	token := sessionPrefix + base64.RawURLEncoding.EncodeToString(text)
	return ca.ExchangedToken{AccessToken: ca.Token(token), IssuedType: typeSession, Expiry: creds.Expires}, nil
}

// sessionOf returns the credentials in a token that tokenOf made.
func sessionOf(token ca.Token) (aws.Credentials, error) {
	encoded, ours := strings.CutPrefix(token.Reveal(), sessionPrefix)
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	var s session
	if !ours || err != nil || len(text) > maxSession || json.Unmarshal(text, &s) != nil || !keyIDPattern.MatchString(s.ID) {
		return aws.Credentials{}, ca.Errorf(ca.Unauthenticated, "the token was not exchanged for credentials of AWS: its source needs the step provider: true, which the exchange block adds")
	}
	return aws.Credentials{AccessKeyID: s.ID, SecretAccessKey: s.Key, SessionToken: s.Token}, nil
}
