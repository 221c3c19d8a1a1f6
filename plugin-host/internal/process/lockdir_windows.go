package process

import "os"

// lockDir locks nothing: this system cannot lock folders. Leftovers of a killed host
// stay.
func lockDir(string) (*os.File, error) { return os.Open(os.DevNull) }

func (d *Folder) isThere() bool { return true }
