package text

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var scheme = regexp.MustCompile(`^[A-Za-z0-9+.-]+://`)

// WithoutPassword hides the password of a text that is a URL, or an address without a scheme such as
// user:password@host. Of what cannot be parsed, it hides all that may be one.
func WithoutPassword(text string) string {
	if first := scheme.FindString(text); first != "" && scheme.MatchString(text[len(first):]) { // a provider's
		return first + WithoutPassword(text[len(first):])
	}
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		return u.Redacted()
	case err == nil && (u.Host != "" || slices.Contains([]string{"mailto", "unix", "file"}, u.Scheme)):
		return text
	}
	return withoutUserinfo(text)
}

// withoutUserinfo hides what is between the first colon after the scheme and the last @.
func withoutUserinfo(text string) string {
	start := len(scheme.FindString(text))
	end := strings.LastIndex(text, "@")
	if end < start {
		return text
	}
	user, password, _ := strings.Cut(text[start:end], ":")
	if password == "" {
		return text
	}
	return text[:start] + user + ":xxxxx" + text[end:]
}
