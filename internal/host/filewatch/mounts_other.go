//go:build !linux

package filewatch

func isMount(string) bool { return false }
