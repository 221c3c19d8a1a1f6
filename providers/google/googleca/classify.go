package googleca

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"cloud.google.com/go/auth"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// classified wraps credentials to separate a temporary failure to get a token from a
// refusal: gRPC reports both as unauthenticated, which is not retried soon.
func classified(creds *auth.Credentials) *auth.Credentials {
	return auth.NewCredentials(&auth.CredentialsOptions{
		TokenProvider: tokens{creds}, JSON: creds.JSON(),
		ProjectIDProvider:      auth.CredentialsPropertyFunc(creds.ProjectID),
		QuotaProjectIDProvider: auth.CredentialsPropertyFunc(creds.QuotaProjectID),
		UniverseDomainProvider: auth.CredentialsPropertyFunc(creds.UniverseDomain),
	})
}

type tokens struct{ auth.TokenProvider }

func (t tokens) Token(ctx context.Context) (*auth.Token, error) {
	token, err := t.TokenProvider.Token(ctx)
	if err == nil {
		return token, nil
	}
	answered, text := answerOf(err)
	code := codes.Unavailable
	if answered/100 == 4 && answered != http.StatusRequestTimeout && answered != http.StatusTooManyRequests {
		code = codes.Unauthenticated
	}
	return nil, status.Error(code, "get a token for the service: "+text)
}

var (
	// The library has no type for the error of a security token service.
	statusSaid = regexp.MustCompile(`status code (\d{3})`)
	// RFC 6749, section 5.2, and Google's own errors.
	errorSaid = regexp.MustCompile(`"(?:error|status)":\s*"([A-Za-z_]+)"`)
)

// answerOf returns the HTTP status of a refusal, 0 without a reply, and a text that quotes
// nothing else of the reply, which may repeat the request.
func answerOf(err error) (answered int, text string) {
	body := err.Error()
	if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Response != nil {
		answered, body = refused.Response.StatusCode, string(refused.Body)
	} else if said := statusSaid.FindStringSubmatch(body); said != nil {
		answered, _ = strconv.Atoi(said[1])
	}
	if answered == 0 {
		return 0, body
	}
	text = fmt.Sprintf("the token service answered %d", answered)
	if word := errorSaid.FindStringSubmatch(body); word != nil {
		text += " " + word[1]
	}
	return answered, text
}
