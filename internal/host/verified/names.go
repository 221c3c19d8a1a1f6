package verified

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/internal/text"
)

// prefix of every provider's file name.
const prefix = "countersign-provider-"

// SignatureSuffix ends the name of a signature, which stands beside the file that it signs.
const SignatureSuffix = ".minisig"

// versionPattern matches what may follow the @ of a file name, of maxVersion bytes at most. A length
// in the pattern would make it slower to compile.
var versionPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]*$`) })

const maxVersion = 64

// CheckName refuses what is not a valid provider name.
func CheckName(name string) error {
	if !text.IsProviderName(name) {
		return fmt.Errorf("invalid provider name %s: use 1 to 63 of a-z, 0-9 and -, not starting with -", text.Quote(name))
	}
	return nil
}

// CheckVersion refuses what cannot follow the @ of a file name; empty means no version.
func CheckVersion(version string) error {
	if version != "" && (len(version) > maxVersion || !versionPattern().MatchString(version)) {
		return fmt.Errorf("invalid provider version %s: use 1 to 64 of a-z, A-Z, 0-9, . + _ and -, starting with a letter or digit", text.Quote(version))
	}
	return nil
}

// BinaryName returns the name of a provider's file: countersign-provider-<name>, followed
// by @<version> if version is set (and .exe on Windows).
func BinaryName(name, version string) string {
	if version != "" {
		name += "@" + version
	}
	return prefix + name + exeSuffix
}

// ParseBinaryName is the inverse of [BinaryName]. ok is false for other files. It does not
// check name and version.
func ParseBinaryName(file string) (name, version string, ok bool) {
	rest, ok := strings.CutPrefix(file, prefix)
	if !ok || !strings.HasSuffix(rest, exeSuffix) || strings.HasSuffix(rest, SignatureSuffix) {
		return "", "", false
	}
	name, version, at := strings.Cut(strings.TrimSuffix(rest, exeSuffix), "@")
	if at && version == "" {
		version = "@" // invalid: acme@ is not acme
	}
	return name, version, true
}

// IsProgram reports whether a file of that name can be one of Countersign's programs
// other than a provider.
func IsProgram(name string) bool {
	return text.IsProviderName(name) && strings.HasPrefix(name, "countersign-") && !strings.HasPrefix(name, prefix)
}

// ref is a provider with its version as a person writes it: acme, or acme@1.2.0.
func ref(name, version string) string {
	if version == "" {
		return name
	}
	return name + "@" + version
}
