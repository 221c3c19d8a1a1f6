package verified

import (
	"strings"
	"testing"
)

func TestVersionIsBounded(t *testing.T) {
	for version, valid := range map[string]bool{
		"": true, "1.2.3-rc.1+x_y": true, strings.Repeat("1", 64): true,
		strings.Repeat("1", 65): false, "-1": false, "1/../2": false, "1\n": false, "é": false,
	} {
		if err := CheckVersion(version); (err == nil) != valid {
			t.Errorf("%q: %v", version, err)
		}
	}
}
