// Package names (experimental) checks the DNS names that clients ask for, and matches them
// against patterns. Call [Fold] on a name before anything else is done with it, then
// [Patterns.Match]. [New] returns fixed patterns; [Open] adds those of a file that it watches.
package names

import (
	"errors"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// The limits of a DNS name in text, in bytes (RFC 1035, section 2.3.4).
const (
	MaxName  = 253
	maxLabel = 63
)

// The errors of [Fold]. They have no part of the name, which a stranger chose.
var (
	ErrEmpty     = errors.New("invalid DNS name: it is empty")
	ErrLong      = errors.New("invalid DNS name: it has more than 253 bytes, or a label of more than 63")
	ErrLabel     = errors.New("invalid DNS name: a label is empty, or begins or ends with a hyphen")
	ErrCharacter = errors.New("invalid DNS name: only letters, digits, hyphens and dots are allowed; write an internationalized name with A-labels (xn--)")
	ErrAddress   = errors.New("invalid DNS name: it is an IP address, or its last label is a number")
	ErrALabel    = errors.New("invalid DNS name: a label that begins with xn-- is not a valid A-label")
)

// Fold returns a name in lower case and without a trailing dot, or an error if it is not a host
// name in DNS syntax (RFC 1123, section 2.1): 253 bytes at most, labels of 1 to 63 letters,
// digits and hyphens, no IP address, no wildcard, no underscore. Internationalized names are
// accepted as A-labels only (RFC 5890). It allocates only if the name has upper case or A-labels.
func Fold(asked string) (string, error) {
	name := strings.TrimSuffix(asked, ".")
	switch {
	case name == "":
		return "", ErrEmpty
	case len(name) > MaxName:
		return "", ErrLong
	}
	if err := checkCharacters(name); err != nil {
		return "", err
	}
	name = strings.ToLower(name) // ASCII by now
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", err
		}
		last = label
	}
	if isNumber(last) {
		return "", ErrAddress
	}
	return name, nil
}

func checkCharacters(name string) error {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '.', 'A' <= c && c <= 'Z':
		case c == ':' || c == '[':
			return ErrAddress
		default:
			return ErrCharacter
		}
	}
	return nil
}

// checkLabel checks a label in lower case.
func checkLabel(label string) error {
	switch {
	case label == "", label[0] == '-', label[len(label)-1] == '-':
		return ErrLabel
	case len(label) > maxLabel:
		return ErrLong
	case strings.HasPrefix(label, "xn--") && !isALabel(label):
		return ErrALabel
	}
	return nil
}

// isALabel reports whether a label is the encoding of what it decodes to. CAs refuse others.
func isALabel(label string) bool {
	decoded, err := idna.Punycode.ToUnicode(label)
	if err != nil || strings.ContainsFunc(decoded, unicode.IsControl) {
		return false
	}
	again, err := idna.Punycode.ToASCII(decoded)
	return err == nil && again == label && decoded != label
}

// isNumber reports whether a label is decimal or hexadecimal: resolvers read a name that ends
// in one as an IPv4 address (WHATWG URL, section 3.5), and no top-level domain is one.
func isNumber(label string) bool {
	if digits, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
