package jws

import (
	"math"
	"time"

	"github.com/go-jose/go-jose/v4/json"
)

// Audience is one string or several.
type Audience []string

// UnmarshalJSON accepts both forms.
func (a *Audience) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '"' {
		return json.Unmarshal(raw, (*[]string)(a))
	}
	*a = Audience{""}
	return json.Unmarshal(raw, &(*a)[0])
}

// IsTime limits a NumericDate to the years 1970 to 6325: floats exceed the range of times.
func IsTime(seconds float64) bool { return seconds >= 0 && seconds < 1<<37 }

// At returns the time of a NumericDate.
func At(seconds float64) time.Time {
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9))
}
