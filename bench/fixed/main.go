// Command countersign-provider-fixed is the fixed authority behind the process
// boundary.
package main

import (
	"github.com/countersign-dev/countersign/bench/fixedca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func main() { provider.Main("fixed", "bench", fixedca.Open) }
