package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	parse "github.com/countersign-dev/countersign/internal/text"
)

// Duration is a time.Duration that is written with a unit.
type Duration struct{ time.Duration }

func hours(n int) Duration   { return Duration{time.Duration(n) * time.Hour} }
func seconds(n int) Duration { return Duration{time.Duration(n) * time.Second} }

// UnmarshalText reads "90s", "30m" or "24h".
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New("write a number with a unit, such as 90s, 30m or 24h")
	}
	d.Duration = parsed
	return nil
}

// FileMode is the permission bits of a file. It is text in the file as well: of a
// bare YAML number it is unknown whether it was written in octal.
type FileMode fs.FileMode

// UnmarshalText reads octal digits, such as "0660".
func (m *FileMode) UnmarshalText(text []byte) error {
	bits, err := strconv.ParseUint(strings.TrimPrefix(string(text), "0o"), 8, 32)
	if err != nil || bits > 0o777 {
		return errors.New(`write octal permissions in quotes, such as "0600" or "0660"`)
	}
	*m = FileMode(bits)
	return nil
}

// String writes it as the file would have it.
func (m FileMode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// Size is a number of bytes.
type Size int64

// UnmarshalText reads "64Mi", "1Gi", the same with a B, or a number of bytes.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := parse.ParseSize(string(text))
	if err != nil {
		return errors.New("write a number of bytes with a unit, such as 256Mi or 1Gi")
	}
	*s = Size(n)
	return nil
}

// Patterns are patterns of DNS names; one may be written without a list.
type Patterns []string

// Period is a [Duration] that may be written in days, such as 30d.
type Period struct{ time.Duration }

const day = 24 * time.Hour

// UnmarshalText reads "30d" and what a Duration is written as.
func (p *Period) UnmarshalText(text []byte) error {
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return errors.New("write a number with a unit, such as 12h or 30d")
		}
		p.Duration = time.Duration(n) * day
		return nil
	}
	return (*Duration)(p).UnmarshalText(text)
}
