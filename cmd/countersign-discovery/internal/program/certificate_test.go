package program

import "testing"

// The manager sends its first requests before New returns it.
func TestNothingIsDueBeforeThereIsAManager(t *testing.T) {
	if _, due := new(signed).due("file"); due {
		t.Error("due")
	}
}
