// Package house checks the tree; its tests need the build tag check. Without this file, go vet
// refuses the package wherever the tag is missing.
package house
