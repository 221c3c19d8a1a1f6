package process

import "os"

// lockDir opens something that is not locked: folders cannot be here, and what a
// killed host left behind stays, see sweep's owner check.
func lockDir(string) (*os.File, error) { return os.Open(os.DevNull) }

func (d *Folder) isThere() bool { return true }
