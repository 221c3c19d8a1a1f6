//go:build !unix

package providertest

import "os"

// stopSignal is nil: there is none.
var stopSignal os.Signal
