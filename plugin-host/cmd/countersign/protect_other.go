//go:build !linux

package main

const missingProtection = "a process of the same user may read this one's memory, and core dumps may hold keys"

func protect() error { return nil }
