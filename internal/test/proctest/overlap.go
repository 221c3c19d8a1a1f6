package proctest

import (
	"flag"
	"strconv"
)

// Overlap runs up to n parallel tests at once unless the -parallel flag is set: Go's
// default is the number of cores, and tests of processes wait more than they compute. TestMain
// calls it first.
func Overlap(n int) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}
