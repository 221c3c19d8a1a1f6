package schema

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// WriteTable writes the settings for a terminal.
func WriteTable(w io.Writer, settings []Setting) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tTYPE\tDEFAULT\tREQUIRED\tSECRET\tDESCRIPTION")
	for _, s := range settings {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Type, cmp.Or(string(s.Default), "-"), yes(s.Required), yes(s.Secret), s.about())
	}
	return table.Flush()
}

// WriteMarkdown writes a provider's page, the same for the same metadata.
func WriteMarkdown(w io.Writer, m wire.Metadata, settings []Setting) error {
	var out strings.Builder
	fmt.Fprintf(&out, "# Provider `%s`\n\nVersion %s. It can: %s.\n", m.Name, escape(m.Version), abilities(m))
	fmt.Fprintf(&out, "\nThis page is made by `countersign provider docs`.\n\n## Settings\n\n")
	if len(settings) == 0 {
		out.WriteString("It takes none.\n")
	} else {
		out.WriteString("| setting | type | default | required | secret | description |\n|---|---|---|---|---|---|\n")
	}
	for _, s := range settings {
		byDefault := ""
		if s.Default != "" {
			byDefault = code(string(s.Default))
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", code(s.Name), escape(s.Type), byDefault, yes(s.Required), yes(s.Secret), escape(s.about()))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func abilities(m wire.Metadata) string {
	var names []string
	for _, a := range m.Abilities {
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

// about is the description with the only values behind it.
func (s Setting) about() string {
	if len(s.Allowed) == 0 {
		return s.Description
	}
	var values []string
	for _, value := range s.Allowed {
		values = append(values, string(value))
	}
	return strings.TrimSpace(s.Description + " (" + strings.Join(values, ", ") + ")")
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// code is text that Markdown shows as it is, in one cell.
func code(text string) string {
	return "`" + strings.NewReplacer("`", "'", "|", `\|`).Replace(text) + "`"
}

// escape keeps foreign text from being markup: a link, an image, HTML, another cell.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", "&lt;", "[", `\[`, "`", "\\`", "*", `\*`, "_", `\_`).Replace(text)
}
