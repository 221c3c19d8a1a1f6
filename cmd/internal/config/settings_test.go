package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestFlagHasTheTypeOfItsSetting(t *testing.T) {
	named := map[reflect.Type][]string{
		reflect.TypeFor[Duration](): {"duration"}, reflect.TypeFor[FileMode](): {"mode"}, reflect.TypeFor[bool](): {"bool"},
		reflect.TypeFor[float64](): {"number"}, reflect.TypeFor[[]uint32](): {"uids", "gids"}, reflect.TypeFor[[]string](): {"folders"},
		reflect.TypeFor[string](): {"address", "domain", "file", "folder", "format", "host:port", "level", "name", "path", "type"},
	}
	for _, s := range Settings() {
		v := reflect.ValueOf(new(Config)).Elem()
		for key := range strings.SplitSeq(s.Path, ".") {
			v, _ = fieldOf(v, key)
		}
		if !slices.Contains(named[v.Type()], s.Type) {
			t.Errorf("--%s is a %q, and its setting a %s", s.Flag, s.Type, v.Type())
		}
	}
}
