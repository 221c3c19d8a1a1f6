package ca

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// Token is a bearer credential. It prints, logs and marshals as "(set)", so that
// a request can be logged; [Token.Reveal] is the one way to its text.
type Token string

const tokenShown = "(set)"

// Reveal returns the credential itself.
func (t Token) Reveal() string { return string(t) }

// String tells whether there is a token.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return tokenShown
}

// GoString keeps %#v from printing the token.
func (t Token) GoString() string { return `ca.Token("` + t.String() + `")` }

// Format writes String or GoString for every verb: one that fits no text, such as
// %d, would print the token itself.
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

// Bearer is a token with the time at which it ends.
type Bearer struct {
	Token Token // empty: there is none, and none is needed
	// Expiry is zero where it is not known.
	Expiry time.Time
}

// Expired tells whether the token has ended at now, as far as is known.
func (b Bearer) Expired(now time.Time) bool {
	return !b.Expiry.IsZero() && !now.Before(b.Expiry)
}
