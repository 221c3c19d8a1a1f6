// Command countersign-provider-fixed is the fixed authority behind the process
// boundary.
package main

import (
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/test/bench/fixedca"
)

func main() { provider.Main("fixed", "bench", fixedca.Open) }
