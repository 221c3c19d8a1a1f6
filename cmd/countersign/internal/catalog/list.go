package catalog

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/verified"
)

// Item is one installed file, as it is shown.
type Item struct {
	Name        string   `json:"name"`
	FileVersion string   `json:"file_version,omitempty"`
	Version     string   `json:"version,omitempty"` // reported by a pinned provider
	Protocol    int      `json:"protocol,omitempty"`
	Abilities   []string `json:"abilities,omitempty"`
	Path        string   `json:"path"`
	SHA256      string   `json:"sha256,omitempty"`
	Pinned      bool     `json:"pinned"`
	ShadowedBy  string   `json:"shadowed_by,omitempty"`
	Refused     string   `json:"refused,omitempty"`
	// Program is the command that runs it, if it is not a provider.
	Program string `json:"program,omitempty"`
}

// List returns every installed provider, in search order. Pinned providers are run, all at
// once and without settings, to query their metadata; an error is reported in its Item.
func (c *Catalog) List(ctx context.Context) []Item {
	found := verified.Finder{Dirs: c.Options.Dirs}.List()
	items := make([]Item, len(found))
	var all sync.WaitGroup
	for i, f := range found {
		all.Go(func() { items[i] = c.item(ctx, f) })
	}
	all.Wait()
	return append(items, c.programs()...)
}

// programs returns Countersign's installed programs; none is run.
func (c *Catalog) programs() (all []Item) {
	for _, p := range programs {
		if item, ok := c.program(p); ok {
			all = append(all, item)
		}
	}
	return all
}

func (c *Catalog) program(p Program) (i Item, installed bool) {
	found, err := verified.Finder{Dirs: c.Options.Dirs}.FindProgram(p.Name)
	if found.Path == "" {
		return i, false
	}
	i = Item{Name: p.Name, Path: found.Path, Program: "countersign " + p.Command}
	if err == nil {
		i.SHA256, err = found.SHA256()
	}
	locked, ok := c.pinned(p.Name)
	if i.Pinned = ok; ok && err == nil && locked.SHA256 != i.SHA256 {
		err = fmt.Errorf("its SHA-256 does not match the locked %s", locked.SHA256)
	}
	if err != nil {
		i.Refused = err.Error()
	}
	return i, true
}

func (c *Catalog) item(ctx context.Context, f verified.Found) Item {
	i := Item{Name: f.Name, FileVersion: f.Version, Path: f.Path, ShadowedBy: f.ShadowedBy}
	err := f.Refused
	if err == nil {
		i.SHA256, err = f.SHA256()
	}
	target := c.target(f)
	if i.Pinned = target.Pin != "" && f.ShadowedBy == ""; i.Pinned && err == nil {
		err = i.describe(ctx, c, target)
	}
	if err != nil {
		i.Refused = err.Error()
	}
	return i
}

func (i *Item) describe(ctx context.Context, c *Catalog, t Target) error {
	d, err := c.Describe(ctx, t)
	if err != nil {
		return err
	}
	i.Version, i.Protocol = d.Version, d.Protocol
	for _, ability := range d.Abilities {
		i.Abilities = append(i.Abilities, ability.String())
	}
	return nil
}

// Note is the remark for people.
func (i Item) Note() string {
	switch {
	case i.Refused != "":
		return i.Refused
	case i.ShadowedBy != "":
		return "shadowed by " + i.ShadowedBy
	case i.Program != "" && !i.Pinned:
		return "not locked; run by " + i.Program
	case i.Program != "":
		return "run by " + i.Program
	case !i.Pinned:
		return "not locked, so not run"
	}
	return "abilities: " + strings.Join(i.Abilities, ", ")
}
