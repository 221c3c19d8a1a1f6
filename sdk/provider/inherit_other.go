//go:build !unix

package provider

import "errors"

// inherit fails: hosts on this system pass no descriptors.
func inherit() (*host, error) {
	return nil, errors.New("this system passes no connection by descriptor")
}
