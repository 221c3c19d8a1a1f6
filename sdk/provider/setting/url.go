package setting

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// URL is an absolute URL: scheme, host, optional port and path; no user, query or fragment.
// The tag schemes lists the schemes that it may have, as in `schemes:"https,http"`; package rest
// sends no credential to an http URL unless its Config permits it. Default: https.
type URL struct{ url.URL }

// ParseURL parses and checks an https URL, for programs that set what is a setting elsewhere.
func ParseURL(written string) (URL, error) {
	var u URL
	if err := u.UnmarshalText([]byte(written)); err != nil {
		return u, err
	}
	return u, u.CheckSetting("")
}

// At returns the URL with more of a path, and perhaps a query, behind its own.
func (u URL) At(path string) string { return strings.TrimSuffix(u.String(), "/") + path }

// UnmarshalText parses a URL with any scheme.
func (u *URL) UnmarshalText(written []byte) error {
	parsed, err := url.Parse(string(written))
	switch {
	case err != nil: // the cause would repeat it
		return errors.New("it takes a URL")
	case parsed.User != nil:
		return errors.New("it takes a URL without a user: use the settings for credentials")
	}
	u.URL = *parsed
	return nil
}

// MarshalText returns the URL.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// CheckSetting checks the parts and the scheme.
func (u URL) CheckSetting(tag reflect.StructTag) error {
	allowed := schemesOf(tag)
	if !slices.Contains(allowed, u.Scheme) || u.User != nil || u.Hostname() == "" || u.Opaque != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return fmt.Errorf("it takes %s://host[:port][/path]", strings.Join(allowed, ":// or "))
	}
	return nil
}

// SettingSchema describes the setting.
func (URL) SettingSchema(tag reflect.StructTag) string {
	allowed := schemesOf(tag)
	return schema("uri", "^("+strings.Join(allowed, "|")+")://[^/?#@]+(/[^?#]*)?$", allowed[0]+"://ca.example.com:8443/path")
}

func schemesOf(tag reflect.StructTag) []string {
	if schemes := tag.Get("schemes"); schemes != "" {
		return strings.Split(schemes, ",")
	}
	return []string{"https"}
}
