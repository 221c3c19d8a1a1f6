package main

import (
	"bytes"
	"fmt"
	"strings"
)

// roff is a page in the language of man(7).
type roff struct{ bytes.Buffer }

// escape keeps characters as they are. A line that begins with a dot would be a macro, and a
// hyphen is to be one when it is copied.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// title names no date: the same programs have the same pages.
func (r *roff) title(name string, section int) {
	r.macro("TH", strings.ToUpper(name), fmt.Sprint(section), "", "Countersign", "Countersign")
}

func (r *roff) section(name string) { r.macro("SH", name) }

// topic writes a section with a text.
func (r *roff) topic(name, text string) {
	r.section(strings.ToUpper(strings.ReplaceAll(name, "-", " ")))
	r.prose(text)
}

// line writes text that is escaped already.
func (r *roff) line(text string) { fmt.Fprintln(r, text) }

func (r *roff) macro(name string, args ...string) {
	fmt.Fprint(r, ".", name)
	for _, arg := range args {
		fmt.Fprintf(r, ` "%s"`, strings.ReplaceAll(escape(arg), `"`, `\(dq`))
	}
	fmt.Fprintln(r)
}

// prose writes paragraphs; lines that are indented stay as they are.
func (r *roff) prose(text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			r.macro("PP")
		}
		r.paragraph(paragraph)
	}
}

func (r *roff) paragraph(text string) {
	kept := false
	for line := range strings.Lines(text) {
		if indented := strings.HasPrefix(line, " "); indented != kept {
			r.macro(map[bool]string{true: "nf", false: "fi"}[indented])
			kept = indented
		}
		r.line(escape(strings.TrimRight(strings.TrimPrefix(line, "  "), " \n")))
	}
	if kept {
		r.macro("fi")
	}
}

func (r *roff) entries(name string, all []entry) {
	if len(all) == 0 {
		return
	}
	r.section(name)
	for _, one := range all {
		r.entry(one.name, one.means)
	}
}

func (r *roff) entry(name, means string) {
	r.macro("TP")
	r.macro("B", name)
	if means == "" {
		r.line(`\&`)
		return
	}
	r.line(escape(means))
}

// settings writes each setting below a path, depth first.
func (r *roff) settings(path string, n node) {
	for _, p := range n.Properties {
		r.setting(strings.TrimPrefix(path+"."+p.name, "."), p.node)
	}
}

func (r *roff) setting(path string, n node) {
	r.entry(path+" ("+n.kind()+")", strings.Join(strings.Fields(n.Description), " "))
	if n.Items != nil {
		r.settings(path+"[]", *n.Items)
	}
	if below := n.additional(); below != nil {
		r.settings(path+".NAME", *below)
	}
	r.settings(path, n)
}
