package text

import "net/url"

// WithoutPassword hides the password of a text that is a URL.
func WithoutPassword(text string) string {
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return u.Redacted()
	}
	return text
}
