//go:build race && linux

package program

func init() { strangersMemory *= 5 }
