// Command man writes the manual pages of a program: man1 for each of its commands, from the
// help that they print, and man5 for its configuration, from the JSON Schema that
// "config schema" prints. The program links nothing for them.
//
//	man -to DIR -config NAME [-skip COMMAND] PROGRAM
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("man: ")
	to := flag.String("to", "", "write the pages into man1 and man5 below this `folder`")
	config := flag.String("config", "", "`name` of the configuration file")
	skip := flag.String("skip", "", "comma-separated `commands` without a page, which are programs of their own")
	flag.Parse()
	if flag.NArg() != 1 || *to == "" || *config == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *to, *config, strings.Split(*skip, ",")); err != nil {
		log.Fatal(err)
	}
}

func run(program, to, config string, skip []string) error {
	m := manual{program: program, to: to, config: config, skip: map[string]bool{}}
	for _, name := range skip {
		m.skip[name] = true
	}
	if err := m.settings(); err != nil {
		return err
	}
	return m.command(nil)
}

type manual struct {
	program, to string
	config      string // of man5
	skip        map[string]bool
}

// command writes the page of a command and of those below it.
func (m manual) command(path []string) error {
	h, err := m.help(append(path, "--help")...)
	if err != nil {
		return err
	}
	page, err := m.page(path, h)
	if err != nil {
		return err
	}
	if err := m.write(1, strings.Join(append([]string{filepath.Base(m.program)}, path...), "-"), page); err != nil {
		return err
	}
	for _, below := range h.commands {
		if m.hasPage(path, below.name) {
			if err := m.command(append(path[:len(path):len(path)], below.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// help asks the program.
func (m manual) help(args ...string) (help, error) {
	out, err := exec.Command(m.program, args...).Output()
	if err != nil {
		return help{}, fmt.Errorf("%s %s: %w", m.program, strings.Join(args, " "), err)
	}
	return parse(string(out)), nil
}

// hasPage: help and completion are everywhere the same.
func (m manual) hasPage(path []string, name string) bool {
	return len(path) > 0 || !m.skip[name] && name != "help" && name != "completion"
}

// write packs a page, the same bytes whichever gzip a machine has.
func (m manual) write(section int, name string, page *roff) error {
	folder := filepath.Join(m.to, fmt.Sprintf("man%d", section))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = w.Write(page.Bytes())
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s.%d.gz", name, section)), packed.Bytes(), 0o644)
}

func (m manual) page(path []string, h help) (*roff, error) {
	program := filepath.Base(m.program)
	name := strings.Join(append([]string{program}, path...), "-")
	p := &roff{}
	p.title(name, 1)
	p.section("NAME")
	p.line(name + " \\- " + escape(h.short()))
	p.section("SYNOPSIS")
	for i, usage := range h.usage {
		if i > 0 {
			p.macro("br")
		}
		p.macro("B", usage)
	}
	p.section("DESCRIPTION")
	about, exit := h.split()
	p.prose(about)
	p.entries("COMMANDS", h.commands)
	p.entries("OPTIONS", h.flags)
	p.entries("GLOBAL OPTIONS", h.global)
	for _, topic := range h.topics {
		more, err := m.help("help", topic.name)
		if err != nil {
			return nil, err
		}
		p.topic(topic.name, more.about)
	}
	if exit != "" {
		p.topic("exit-status", exit)
	}
	if len(h.examples) > 0 {
		p.topic("examples", strings.TrimRight(strings.Join(h.examples, "\n"), "\n"))
	}
	p.section("SEE ALSO")
	p.line(strings.Join(m.related(path, h), ",\n"))
	return p, nil
}

func (m manual) related(path []string, h help) (all []string) {
	see := func(name string, section int) {
		all = append(all, fmt.Sprintf("\\fB%s\\fR(%d)", escape(name), section))
	}
	name := append([]string{filepath.Base(m.program)}, path...)
	if len(path) > 0 {
		see(strings.Join(name[:len(name)-1], "-"), 1)
	}
	for _, below := range h.commands {
		if m.hasPage(path, below.name) || m.skip[below.name] {
			see(strings.Join(name, "-")+"-"+below.name, 1)
		}
	}
	see(m.config, 5)
	return all
}

// settings writes man5 from the program's JSON Schema.
func (m manual) settings() error {
	text, err := exec.Command(m.program, "config", "schema").Output()
	if err != nil {
		return fmt.Errorf("%s config schema: %w", m.program, err)
	}
	var top node
	if err := json.Unmarshal(text, &top); err != nil {
		return fmt.Errorf("%s config schema: %w", m.program, err)
	}
	program := filepath.Base(m.program)
	p := &roff{}
	p.title(m.config, 5)
	p.section("NAME")
	p.line(escape(m.config) + " \\- configuration of " + escape(program))
	p.section("DESCRIPTION")
	p.prose("A YAML file, named by --config or COUNTERSIGN_CONFIG. A setting that is unknown or wrong stops the start.")
	p.section("SETTINGS")
	p.settings("", top)
	p.section("SEE ALSO")
	p.line("\\fB" + escape(program) + "\\fR(1)")
	return m.write(5, m.config, p)
}

// node is a JSON Schema, as far as its pages need it.
type node struct {
	Type        any             `json:"type"`
	Description string          `json:"description"`
	Properties  properties      `json:"properties"`
	Items       *node           `json:"items"`
	Additional  json.RawMessage `json:"additionalProperties"`
}

// properties keep their order.
type properties []property

type property struct {
	name string
	node
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *properties) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		one := property{name: fmt.Sprint(name)}
		if err := d.Decode(&one.node); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	return nil
}

func (n node) kind() string {
	list, ok := n.Type.([]any)
	if !ok {
		return fmt.Sprint(cmp.Or(n.Type, any("any")))
	}
	var kinds []string
	for _, kind := range list {
		if kind != "null" {
			kinds = append(kinds, fmt.Sprint(kind))
		}
	}
	return strings.Join(kinds, " or ")
}

// additional is the schema of values with names that the operator chooses; nil: none.
func (n node) additional() *node {
	var below node
	if len(n.Additional) == 0 || n.Additional[0] != '{' || json.Unmarshal(n.Additional, &below) != nil {
		return nil
	}
	return &below
}
