package budget

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/tokenbucket"
)

// Rate is how much may happen in a time, gained evenly over it. The zero Rate does not limit.
type Rate struct {
	Count int
	Every time.Duration
	// Burst is how much may happen at once after a rest. Default: Count.
	Burst int
}

// units are the times that [ParseRate] accepts. The first of each length is the one that String writes.
var units = []struct {
	name  string
	every time.Duration
}{
	{"s", time.Second}, {"min", time.Minute}, {"m", time.Minute}, {"h", time.Hour}, {"hour", time.Hour},
	{"day", 24 * time.Hour}, {"d", 24 * time.Hour}, {"week", 7 * 24 * time.Hour}, {"w", 7 * 24 * time.Hour},
}

// longest bounds a wait.
const longest = 365 * 24 * time.Hour

const maxCount = 1_000_000

// ParseRate reads a rate such as "10/min" or "50/week". The units are s, min, h, day and week.
func ParseRate(text string) (Rate, error) {
	count, unit, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(count)
	if err == nil && (n < 1 || n > maxCount) {
		err = errors.New("out of range")
	}
	for _, u := range units {
		if u.name == unit && err == nil {
			return Rate{Count: n, Every: u.every}, nil
		}
	}
	return Rate{}, fmt.Errorf("invalid rate %.64q: write a number from 1 to %d and s, min, h, day or week, such as 10/min", text, maxCount)
}

// String returns the rate as [ParseRate] reads it, without its burst.
func (r Rate) String() string {
	for _, u := range units {
		if u.every == r.Every {
			return fmt.Sprintf("%d/%s", r.Count, u.name)
		}
	}
	return fmt.Sprintf("%d/%s", r.Count, r.Every)
}

// MarshalText encodes the rate as String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText decodes what [ParseRate] reads.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

func (r Rate) unlimited() bool    { return r.Count <= 0 || r.Every <= 0 }
func (r Rate) perSecond() float64 { return float64(r.Count) / r.Every.Seconds() }
func (r Rate) burst() float64     { return float64(max(1, cmp.Or(r.Burst, r.Count))) }

func (r Rate) wait(b *tokenbucket.Bucket, now time.Time) time.Duration {
	if r.unlimited() {
		return 0
	}
	b.Spent = min(b.Spent, r.burst()+r.perSecond()*longest.Seconds()) // a saved count may be anything
	return b.Wait(now, r.perSecond(), r.burst())
}
