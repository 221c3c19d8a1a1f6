package ca

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// Token is a bearer credential. It prints, logs and marshals as "(set)", so a request
// can be logged safely; only [Token.Reveal] returns the text.
type Token string

const secretShown = "(set)"

// Reveal returns the credential itself.
func (t Token) Reveal() string { return string(t) }

// String returns "(set)", or "" for an empty token.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return secretShown
}

// GoString keeps %#v from printing the token.
func (t Token) GoString() string { return `ca.Token("` + t.String() + `")` }

// Format writes String or GoString for every verb: a verb that does not fit a string,
// such as %d, would otherwise print the token.
func (t Token) Format(f fmt.State, verb rune) {
	text := t.String()
	switch {
	case verb == 'v' && f.Flag('#'):
		text = t.GoString()
	case verb == 'q':
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(f, text)
}

// MarshalText keeps encoders (JSON, slog) from writing the token.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Bearer is a token with its expiry.
type Bearer struct {
	Token Token // empty if there is none and none is needed
	// Expiry is zero if unknown.
	Expiry time.Time
}

// Expired reports whether the token has expired at now. A token of unknown expiry has
// not.
func (b Bearer) Expired(now time.Time) bool {
	return !b.Expiry.IsZero() && !now.Before(b.Expiry)
}
