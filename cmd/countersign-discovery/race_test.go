//go:build race && linux

package main

func init() { strangersMemory *= 5 }
