package config

import (
	"reflect"
	"strings"
)

// NeedRestart names the settings that differ between two complete configurations
// and that a running agent does not take over: everything but how its providers
// are found, pinned and set up.
func NeedRestart(old, now Config) []string {
	names := differing("", reflect.ValueOf(old), reflect.ValueOf(now))
	running := byName(old.Providers)
	for _, p := range now.Providers {
		was, ok := running[p.Name]
		delete(running, p.Name)
		if !ok {
			names = append(names, "providers."+p.Name)
			continue
		}
		prefix := "providers." + p.Name + "."
		names = append(names, differing(prefix, reflect.ValueOf(was.Credential), reflect.ValueOf(p.Credential))...)
		names = append(names, differing(prefix, reflect.ValueOf(was.Trust), reflect.ValueOf(p.Trust))...)
	}
	for _, p := range old.Providers {
		if _, ok := running[p.Name]; ok {
			names = append(names, "providers."+p.Name)
		}
	}
	return names
}

func byName(providers []Provider) map[string]Provider {
	all := map[string]Provider{}
	for _, p := range providers {
		all[p.Name] = p
	}
	return all
}

// differing names the fields of two structs that differ, by their keys in the file.
func differing(prefix string, old, now reflect.Value) []string {
	var names []string
	for i := range old.NumField() {
		field := old.Type().Field(i)
		switch key, _, _ := strings.Cut(field.Tag.Get("json"), ","); {
		case !field.IsExported() || key == "providers" || reflect.DeepEqual(old.Field(i).Interface(), now.Field(i).Interface()):
		case field.Anonymous:
			names = append(names, differing(prefix, old.Field(i), now.Field(i))...)
		case field.Type.Kind() == reflect.Struct && field.Type.NumField() > 1:
			names = append(names, differing(prefix+key+".", old.Field(i), now.Field(i))...)
		default:
			names = append(names, prefix+key)
		}
	}
	return names
}
