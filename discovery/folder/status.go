package folder

import (
	"maps"
	"slices"
)

// maxWarnings limits the warnings of one file.
const maxWarnings = 20

// Status is the state of the folder.
type Status struct {
	// Path of the folder.
	Path string `json:"path"`
	// Fault is why the folder as a whole cannot be read; its last content stays in use.
	Fault string `json:"fault,omitempty"`
	// Files are sorted by name.
	Files []FileStatus `json:"files"`
}

// FileStatus is the state of one file.
type FileStatus struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Reason is one sentence why the current file is not served.
	Reason string `json:"reason,omitempty"`
	// Resources counts the resources and hosts served from it.
	Resources int `json:"resources"`
	// Warnings list references to resources in no file, and resources that nothing uses.
	Warnings []string `json:"warnings,omitempty"`
}

// State is the state of a file in one word.
type State string

// The states of a file.
const (
	Served  State = "served"
	Kept    State = "kept"    // bad; its last good content is served
	Refused State = "refused" // bad; no part of it is served
)

// Status returns the current state of the folder.
func (f *Folder) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Path: f.cfg.Path, Files: []FileStatus{}}
	if f.fault != nil {
		s.Fault = f.fault.Error()
	}
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		if e := f.entries[name]; e.latest != nil || e.fault != nil { // it was parsed before
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
