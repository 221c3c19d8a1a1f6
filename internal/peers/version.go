package peers

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNewer is in the chain of what [CheckVersion] returns.
var ErrNewer = errors.New("a newer version of this program wrote it")

// CheckVersion fails for a JSON record whose version is above the one that the caller supports.
// Such a record may have any other form, so check this before anything else, and do not
// overwrite it: a rollback would destroy what the newer replicas need.
func CheckVersion(record []byte, known int) error {
	var has struct {
		Version float64 `json:"version"`
	}
	if json.Unmarshal(record, &has) == nil && has.Version > float64(known) {
		return fmt.Errorf("record version %v is not supported, %d is the latest known: %w; upgrade this replica, or delete the record", has.Version, known, ErrNewer)
	}
	return nil // what is malformed has no version
}
