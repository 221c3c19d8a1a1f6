package main

import (
	"regexp"
	"strings"
)

// help is what a command prints about itself.
type help struct {
	about    string
	usage    []string
	commands []entry
	flags    []entry
	global   []entry
	examples []string
	topics   []entry
}

// entry is a line with a name and what it means.
type entry struct{ name, means string }

var (
	heading = regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`)
	// Two spaces or more part a name from what it means.
	listed = regexp.MustCompile(`^  +(\S.*?)(?:   *(\S.*))?$`)
)

// continued begins a line that goes on with what the entry above means.
const continued = "          "

// parse reads cobra's help: text, then sections with a heading.
func parse(text string) (h help) {
	var about []string
	section := ""
	for line := range strings.SplitSeq(text, "\n") {
		if found := heading.FindStringSubmatch(line); found != nil && known(found[1]) {
			section = found[1]
			continue
		}
		if section == "" {
			about = append(about, line)
			continue
		}
		h.add(section, line)
	}
	h.about = strings.Trim(strings.Join(about, "\n"), "\n")
	return h
}

func known(heading string) bool {
	switch heading {
	case "Usage", "Available Commands", "More Help", "Flags", "Global Flags", "Examples", "Aliases":
		return true
	}
	return false
}

func (h *help) add(section, line string) {
	if section == "Examples" {
		h.examples = append(h.examples, line)
		return
	}
	if section != "Usage" && strings.HasPrefix(line, continued) {
		h.further(section, strings.TrimSpace(line))
		return
	}
	found := listed.FindStringSubmatch(line)
	if found == nil {
		return
	}
	one := entry{found[1], found[2]}
	switch section {
	case "Usage":
		h.usage = append(h.usage, strings.TrimSpace(line))
	case "Available Commands":
		h.commands = append(h.commands, one)
	case "More Help":
		h.topics = append(h.topics, one)
	case "Flags":
		h.flags = append(h.flags, one)
	case "Global Flags":
		h.global = append(h.global, one)
	}
}

// further adds a line to the last entry of a section.
func (h *help) further(section, line string) {
	entries := map[string][]entry{"Available Commands": h.commands, "Flags": h.flags, "Global Flags": h.global}[section]
	if n := len(entries); n > 0 {
		entries[n-1].means += " " + line
	}
}

// split takes the paragraph about the exit code out of the text, for a section of its own.
func (h help) split() (about, exit string) {
	var rest []string
	for _, paragraph := range strings.Split(h.about, "\n\n") {
		if strings.HasPrefix(paragraph, "The exit code is") {
			exit = paragraph
		} else {
			rest = append(rest, paragraph)
		}
	}
	return strings.Join(rest, "\n\n"), exit
}

// short is the first sentence of what the command does, for the page's name.
func (h help) short() string {
	first, _, _ := strings.Cut(h.about, "\n\n")
	first = strings.Join(strings.Fields(first), " ")
	if end := strings.Index(first, ". "); end > 0 {
		first = first[:end]
	}
	return strings.TrimSuffix(first, ".")
}
