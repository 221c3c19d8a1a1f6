package folder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/discovery"
	ndsv1 "github.com/countersign-dev/countersign/proto/istio/networking/nds/v1"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const (
	maxNames = 50_000 // resources and hosts in a folder
	maxViews = 1_000  // cached
)

// generation is the set of good files of a folder at one time. Its content is immutable
// once filled.
type generation struct {
	holders map[key][]*keyedFile // with disjoint selectors
	users   map[key][]*file      // what may use a resource
	listens []*file              // have listeners
	open    []*file              // may use any cluster
	count   int                  // number of resources and hosts
	tos     []selector           // without duplicates
	meet    map[[2]*file]bool    // whether their selectors overlap; cached because it is expensive

	mu    sync.Mutex
	views map[string]*view // by matching selectors
}

// keyedFile is a file under one of its keys.
type keyedFile struct {
	path string
	*file
}

func newGeneration() *generation {
	return &generation{holders: map[key][]*keyedFile{}, users: map[key][]*file{}, meet: map[[2]*file]bool{}, views: map[string]*view{}}
}

// add adds a file, or returns why it conflicts with a file added before.
func (g *generation) add(path string, f *file) error {
	if g.count+len(f.versions) > maxNames {
		return faultf("the folder would have more than %d resources", maxNames)
	}
	for _, k := range slices.SortedFunc(maps.Keys(f.versions), compareKeys) {
		if first := g.holder(k, f); first != nil {
			return faultf("%s is already in %s, and some callers match both files; the file that sorts first is served", k, first.path)
		}
	}
	h := &keyedFile{path, f}
	g.count += len(f.versions)
	for k := range f.versions {
		g.holders[k] = append(g.holders[k], h)
	}
	g.use(f)
	if !slices.ContainsFunc(g.tos, func(s selector) bool { return s.text == f.to.text }) {
		g.tos = append(g.tos, f.to)
	}
	return nil
}

// holder returns a file that has the key for a caller that gets the given file.
func (g *generation) holder(k key, f *file) *keyedFile {
	for _, h := range g.holders[k] {
		if g.meets(h.file, f) {
			return h
		}
	}
	return nil
}

// meets reports whether some callers may get both files.
func (g *generation) meets(a, b *file) bool {
	pair := [2]*file{a, b}
	meet, known := g.meet[pair]
	if !known {
		meet = a.to.overlaps(b.to)
		g.meet[pair] = meet
	}
	return meet
}

// use records what a file may use.
func (g *generation) use(f *file) {
	for r := range f.uses {
		g.users[r] = append(g.users[r], f)
	}
	for k := range f.versions {
		if k.url == ListenerURL {
			g.listens = append(g.listens, f)
			break
		}
	}
	if f.open {
		g.open = append(g.open, f)
	}
}

// unused returns the resources of a file that nothing uses, sorted. Where none of its callers gets a
// listener from the folder, that cannot be told.
func (g *generation) unused(f *file) (all []key) {
	if !g.meetsAny(g.listens, f) {
		return nil
	}
	open := g.meetsAny(g.open, f)
	for k := range f.versions {
		if k.url == ListenerURL || k.url == NameTableURL || k.url == ClusterURL && open {
			continue
		}
		if _, itself := f.uses[k]; !itself && !g.meetsAny(g.users[k], f) {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, compareKeys)
	return all
}

func (g *generation) meetsAny(files []*file, f *file) bool {
	return slices.Contains(files, f) || slices.ContainsFunc(files, func(other *file) bool { return g.meets(other, f) })
}

// warnings returns references in a file that no file resolves for the same callers, and resources
// that nothing uses.
func (g *generation) warnings(f *file) []string {
	var all []string
	for _, r := range f.refs {
		if len(all) < maxWarnings && g.holder(r, f) == nil {
			all = append(all, fmt.Sprintf("%s is named here, and no file has it for the same callers; Envoy must have it from elsewhere", r))
		}
	}
	for _, k := range g.unused(f) {
		if len(all) < maxWarnings {
			all = append(all, fmt.Sprintf("%s is used by no file for the same callers; Envoy must use it from elsewhere, or remove it", k))
		}
	}
	return all
}

// resource returns the caller's resource under that key.
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

// view returns what a caller may have. Callers that match the same selectors share it.
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
	if len(g.views) < maxViews { // a client can create any number with labels
		g.views[string(matched)] = v
	}
	return v
}

// changed returns the resources that differ from the earlier generation, and the types
// whose lists differ.
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

// compareHolders reports whether the same callers have the key, and whether its content
// is the same for them.
func compareHolders(k key, before, now []*keyedFile) (sameCallers, same bool) {
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

// tableName names the single name table of a caller. Istio leaves it unnamed, but the
// incremental protocol cannot subscribe to an unnamed resource.
const tableName = "names"

func tableOf(hosts map[string]*ndsv1.NameTable_NameInfo) *xds.Resource {
	table, err := marshal(tableName, &ndsv1.NameTable{Table: hosts})
	if err != nil { // each host was marshalled before, so the text is UTF-8
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
