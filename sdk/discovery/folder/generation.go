package folder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	ndsv1 "github.com/countersign-dev/countersign/proto/istio/networking/nds/v1"
	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const (
	maxNames = 50_000 // of resources and hosts in a folder
	maxViews = 1_000  // that are kept
)

// generation is all good files of a folder at one time. What is served does not change
// once it is filled.
type generation struct {
	holders map[key][]*held   // with selectors that do not overlap
	count   int               // of all that is held
	tos     []selector        // each once
	meet    map[[2]*file]bool // whether their selectors overlap, which is costly to know

	mu    sync.Mutex
	views map[string]*view // by which selectors match
}

// held is a file in its place.
type held struct {
	path string
	*file
}

func newGeneration() *generation {
	return &generation{holders: map[key][]*held{}, meet: map[[2]*file]bool{}, views: map[string]*view{}}
}

// add takes a file, or tells why it cannot stand beside those that were added before.
func (g *generation) add(path string, f *file) error {
	if g.count+len(f.versions) > maxNames {
		return faultf("with it the folder would hold more than %d resources", maxNames)
	}
	for _, k := range slices.SortedFunc(maps.Keys(f.versions), compareKeys) {
		if first := g.holder(k, f); first != nil {
			return faultf("%s is in %s already, and there are callers that both files are for; the file that comes first by its name is served", k, first.path)
		}
	}
	h := &held{path, f}
	g.count += len(f.versions)
	for k := range f.versions {
		g.holders[k] = append(g.holders[k], h)
	}
	if !slices.ContainsFunc(g.tos, func(s selector) bool { return s.text == f.to.text }) {
		g.tos = append(g.tos, f.to)
	}
	return nil
}

// holder returns a file that has the key for a caller whom that file is for.
func (g *generation) holder(k key, f *file) *held {
	for _, h := range g.holders[k] {
		pair := [2]*file{h.file, f}
		meet, known := g.meet[pair]
		if !known {
			meet = h.to.overlaps(f.to)
			g.meet[pair] = meet
		}
		if meet {
			return h
		}
	}
	return nil
}

// warnings are what a file names and no file has for the same callers.
func (g *generation) warnings(f *file) []string {
	var all []string
	for _, r := range f.refs {
		if len(all) < maxWarnings && g.holder(r, f) == nil {
			all = append(all, fmt.Sprintf("%s is named here, and no file has it for the same callers; Envoy must have it from elsewhere", r))
		}
	}
	return all
}

// resource returns what the caller has under that key.
func (g *generation) resource(c *discovery.Caller, k key) *xds.Resource {
	if k.url == NameTableURL {
		if k.name != tableName {
			return nil
		}
		return g.view(c).table()
	}
	for _, h := range g.holders[k] {
		if h.to.matches(c) {
			return h.resources[k]
		}
	}
	return nil
}

// view returns what a caller may have. It is the same for all whom the same selectors
// match.
func (g *generation) view(c *discovery.Caller) *view {
	matched := make([]byte, len(g.tos))
	for i, to := range g.tos {
		if to.matches(c) {
			matched[i] = 1
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.views[string(matched)]
	if v != nil {
		return v
	}
	mayHave := map[string]bool{}
	for i, to := range g.tos {
		mayHave[to.text] = matched[i] == 1
	}
	v = newView(g, mayHave)
	if len(g.views) < maxViews { // labels make as many as a client likes
		g.views[string(matched)] = v
	}
	return v
}

// changed returns what is another in the generation than it was before, and the types
// whose lists are.
func (g *generation) changed(before *generation) (keys []key, lists []string) {
	all := maps.Clone(before.holders)
	maps.Copy(all, g.holders)
	types := map[string]bool{}
	for k := range all {
		sameNames, same := compareHolders(k, before.holders[k], g.holders[k])
		if !same {
			keys = append(keys, k)
		}
		if !sameNames {
			types[k.url] = true
		}
	}
	return keys, slices.Collect(maps.Keys(types))
}

// compareHolders tells whether the same callers have the key, and whether they have the
// same under it.
func compareHolders(k key, before, now []*held) (sameCallers, same bool) {
	if len(before) != len(now) {
		return false, false
	}
	same = true
	for i, h := range now {
		if h.to.text != before[i].to.text {
			return false, false
		}
		same = same && h.versions[k] == before[i].versions[k]
	}
	return true, same
}

// view is what a class of callers may have.
type view struct {
	names map[string][]string // by type, sorted
	table func() *xds.Resource
}

func newView(g *generation, mayHave map[string]bool) *view {
	v := &view{names: map[string][]string{}}
	hosts := map[string]*ndsv1.NameTable_NameInfo{}
	for k, holders := range g.holders {
		for _, h := range holders {
			switch {
			case !mayHave[h.to.text]:
			case k.url == NameTableURL:
				hosts[k.name] = h.hosts[k.name]
			default:
				v.names[k.url] = append(v.names[k.url], k.name)
			}
		}
	}
	for _, names := range v.names {
		slices.Sort(names)
	}
	v.table = sync.OnceValue(func() *xds.Resource { return tableOf(hosts) })
	return v
}

// tableName is that of the one name table that a caller has; Istio gives it none, which
// the incremental protocol has no way to subscribe to.
const tableName = "names"

func tableOf(hosts map[string]*ndsv1.NameTable_NameInfo) *xds.Resource {
	table, err := marshal(tableName, &ndsv1.NameTable{Table: hosts})
	if err != nil { // the hosts were marshalled each, so their text is UTF-8
		return nil
	}
	return table
}

func compareKeys(a, b key) int {
	if a.url != b.url {
		return cmp.Compare(a.url, b.url)
	}
	return cmp.Compare(a.name, b.name)
}
