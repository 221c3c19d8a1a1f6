//go:build !linux

package sds_test

import "errors"

func serveWithFewDescriptors(string) error { return errors.ErrUnsupported }
