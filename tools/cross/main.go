// Command cross checks that packages compile for another system than this one, by the
// types alone: GOOS=darwin cross ./sdk/... fails where `GOOS=darwin go build ./sdk/...`
// does for an error in the source. No machine code is made, and of what is only imported
// no function's body is looked at, so that it takes seconds where a compiler that has to
// make Envoy's types for each system takes minutes. Run it by `make check NAME=tree`.
package main

import (
	"log"
	"os"

	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	found, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax,
		// With cgo, the C compiler of that system would be needed.
		Env: append(os.Environ(), "CGO_ENABLED=0"),
	}, os.Args[1:]...)
	if err != nil {
		log.Fatal(err)
	}
	if packages.PrintErrors(found) > 0 {
		os.Exit(1)
	}
	log.Printf("%d packages for %s are sound", len(found), os.Getenv("GOOS"))
}
