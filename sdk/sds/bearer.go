package sds

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// DefaultTokenHeaders lists the metadata keys that may carry a stream's token: that of
// RFC 6750 and that of Istio's former node agent.
var DefaultTokenHeaders = []string{authorization, "istio_sds_credentials_header-bin"}

const (
	authorization = "authorization"
	scheme        = "bearer "
	maxToken      = 64 << 10
)

// bearer returns the token of a call, on which all its headers must agree, or "" if
// there is none. Errors never quote it.
func bearer(ctx context.Context, headers []string) (ca.Token, error) {
	var token ca.Token
	for _, header := range headers {
		values := metadata.ValueFromIncomingContext(ctx, header)
		switch len(values) {
		case 0:
			continue
		case 1:
		default:
			return "", ca.Errorf(ca.Unauthenticated, "the metadata %q is there %d times: one token is needed", header, len(values))
		}
		found, err := tokenIn(header, values[0])
		if err != nil {
			return "", err
		}
		if token != "" && token != found {
			return "", ca.Errorf(ca.Unauthenticated, "the metadata %q has another token than %q: one token is needed", header, headers[0])
		}
		token = found
	}
	return token, nil
}

// tokenIn parses one header value. Only the authorization header needs the Bearer
// prefix.
func tokenIn(header, value string) (ca.Token, error) {
	token := value
	if len(value) >= len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
		token = value[len(scheme):]
	} else if header == authorization {
		return "", ca.Errorf(ca.Unauthenticated, "the metadata %q is not of the form: Bearer <token>", header)
	}
	switch {
	case token == "":
		return "", ca.Errorf(ca.Unauthenticated, "the metadata %q has an empty token", header)
	case len(token) > maxToken:
		return "", ca.Errorf(ca.Unauthenticated, "the metadata %q has a token of %d bytes, %d are allowed", header, len(token), maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", ca.Errorf(ca.Unauthenticated, "the token in the metadata %q has a space or a character that is not printable ASCII", header)
	}
	return ca.Token(token), nil
}
