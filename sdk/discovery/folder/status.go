package folder

import (
	"maps"
	"slices"
)

// maxWarnings bounds those of one file.
const maxWarnings = 20

// Status is how the folder is.
type Status struct {
	// Path is the folder's.
	Path string `json:"path"`
	// Fault says why the folder as a whole cannot be read; what it held stays.
	Fault string `json:"fault,omitempty"`
	// Files are sorted by name.
	Files []FileStatus `json:"files"`
}

// FileStatus is how one file is.
type FileStatus struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Reason is one sentence where the file as it is now is not served.
	Reason string `json:"reason,omitempty"`
	// Resources and hosts that are served out of it.
	Resources int `json:"resources"`
	// Warnings are about resources that are named and are in no file.
	Warnings []string `json:"warnings,omitempty"`
}

// State is one word about a file.
type State string

// The states.
const (
	Served  State = "served"
	Kept    State = "kept"    // it is bad; what it held when it was good is served
	Refused State = "refused" // it is bad; nothing of it is served
)

// Status returns how the folder is now.
func (f *Folder) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Path: f.cfg.Path, Files: []FileStatus{}}
	if f.fault != nil {
		s.Fault = f.fault.Error()
	}
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		if e := f.entries[name]; e.latest != nil || e.fault != nil { // it was read once
			s.Files = append(s.Files, e.status())
		}
	}
	return s
}

func (e *entry) status() FileStatus {
	s := FileStatus{Name: e.name, State: Served, Reason: e.reason(), Warnings: e.warned}
	switch {
	case e.served == nil:
		s.State = Refused
	case e.refusal != nil:
		s.State = Kept
	}
	if e.served != nil {
		s.Resources = len(e.served.versions)
	}
	return s
}
