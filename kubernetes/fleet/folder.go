package fleet

import (
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/kubeconfig"
)

// CheckFolder returns why files in a folder of kubeconfigs would not be taken: one text for each
// such file, with its path. An error is that the folder cannot be read. It contacts no cluster.
func CheckFolder(folder string, rules kubeconfig.Rules) (faults []string, err error) {
	claims, err := readFolder(folder)
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		if _, fault := c.parse(rules); fault != "" {
			faults = append(faults, c.source+": "+fault)
		}
	}
	return faults, nil
}

// folderClaims returns the folder's claims, or the last known ones if it is unreadable.
func (f *Fleet) folderClaims() []claim {
	if f.cfg.Folder == "" {
		return nil
	}
	claims, err := readFolder(f.cfg.Folder)
	if err == nil {
		f.ofFolder = claims
	}
	f.noteFolder(err)
	return f.ofFolder
}

func (f *Fleet) noteFolder(err error) {
	fault := ""
	if err != nil {
		fault = text.Clean(err.Error())
	}
	f.mu.Lock()
	before := f.folder
	f.folder = fault
	f.mu.Unlock()
	switch {
	case fault != "" && before != fault:
		f.cfg.Log.Warn("cannot read the kubeconfig folder, keeping its last known clusters", "folder", f.cfg.Folder, "error", fault)
	case fault == "" && before != "":
		f.cfg.Log.Info("kubeconfig folder readable again", "folder", f.cfg.Folder)
	}
}
