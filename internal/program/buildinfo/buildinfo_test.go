package buildinfo

import (
	"os"
	"strings"
	"testing"
)

// make check NAME=fips builds this with each of the modules and passes its name.
func TestFIPSModuleIsOnWhereBuiltWithIt(t *testing.T) {
	want, built := os.LookupEnv("COUNTERSIGN_FIPS")
	if got := This().FIPS; !strings.HasPrefix(got, want) || (got != "") != built {
		t.Errorf("the module is %q, want %q", got, want)
	}
}
