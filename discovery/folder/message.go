package folder

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/cncf/xds/go/udpa/annotations"

	"github.com/countersign-dev/countersign/internal/suggest"
	"github.com/countersign-dev/countersign/internal/text"
)

const anyName = "google.protobuf.Any"

// fill reads a tree into a message by protobuf's JSON rules and rejects unknown fields.
func fill(m proto.Message, tree any) error {
	err := unmarshal(m, tree)
	if err == nil {
		return nil
	}
	return locate(m.ProtoReflect().Type(), tree, err)
}

func unmarshal(m proto.Message, tree any) error {
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, m)
}

// locate returns where in a message's tree err arose; protojson reports only the column
// in generated JSON. It retries each field alone.
func locate(of protoreflect.MessageType, tree any, err error) error {
	entries, ok := tree.(map[string]any)
	if !ok && !isJSONsOwn(of) {
		return faultf("unexpected %s; write the fields of %s", shown(tree), of.Descriptor().Name())
	}
	if of.Descriptor().FullName() == anyName {
		return locateAny(entries, err)
	}
	if isJSONsOwn(of) {
		return says(err)
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		field := fieldOf(of.Descriptor(), key)
		if field == nil {
			return at(key, unknown(of.Descriptor(), key))
		}
		if err := try(of, key, entries[key]); err != nil {
			return at(key, locateField(of, field, entries[key], err))
		}
	}
	return says(err) // a conflict between fields
}

func try(of protoreflect.MessageType, key string, value any) error {
	return unmarshal(of.New().Interface(), map[string]any{key: value})
}

// locateField examines the value of a bad field. Values that Envoy marks sensitive
// (private keys, passwords) never appear in a status.
func locateField(of protoreflect.MessageType, field protoreflect.FieldDescriptor, value any, err error) error {
	if sensitive, _ := proto.GetExtension(field.Options(), annotations.E_Sensitive).(bool); sensitive {
		return faultf("not in the format Envoy expects; the content is secret and not shown")
	}
	key := field.JSONName()
	if list, ok := value.([]any); ok && field.IsList() {
		for i, element := range list {
			if err := try(of, key, []any{element}); err != nil {
				return at(index(i), locateValue(field, element, err))
			}
		}
	}
	if entries, ok := value.(map[string]any); ok && field.IsMap() {
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			if err := try(of, key, map[string]any{name: entries[name]}); err != nil {
				return at(name, locateValue(field.MapValue(), entries[name], err))
			}
		}
	}
	if field.IsList() {
		return says(err)
	}
	return locateValue(field, value, err)
}

// locateValue examines one value: of a field, a list or a map.
func locateValue(field protoreflect.FieldDescriptor, value any, err error) error {
	if field.Message() == nil {
		return says(err)
	}
	of, missing := protoregistry.GlobalTypes.FindMessageByName(field.Message().FullName())
	if missing != nil { // a map entry, which has no name
		return says(err)
	}
	return locate(of, value, err)
}

// locateAny examines the content of an Any if err comes from it and not from a field
// beside it.
func locateAny(entries map[string]any, err error) error {
	url, ok := entries["@type"].(string)
	if !ok {
		return at("@type", faultf("missing; write the type of this message, such as type.googleapis.com/envoy..."))
	}
	of, unknown := typeOf(url)
	if unknown != nil {
		return at("@type", unknown)
	}
	if isJSONsOwn(of) {
		if err := unmarshal(of.New().Interface(), entries["value"]); err != nil {
			return at("value", says(err))
		}
		return says(err)
	}
	rest := maps.Clone(entries)
	delete(rest, "@type")
	if err := unmarshal(of.New().Interface(), rest); err != nil {
		return locate(of, rest, err)
	}
	return says(err)
}

// typeOf returns the type named by an Any's URL.
func typeOf(url string) (protoreflect.MessageType, error) {
	of, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err == nil && strings.Contains(url, "/") {
		return of, nil
	}
	if !strings.Contains(url, "/") {
		return nil, faultf("%.256q is not a type URL; it must begin with type.googleapis.com/", url)
	}
	return nil, faultf("unknown type %.256q; use types of Envoy's v3 API, without contrib", url)
}

// isJSONsOwn reports whether the message has a special form in JSON.
func isJSONsOwn(of protoreflect.MessageType) bool {
	name := of.Descriptor().FullName()
	return name.Parent() == "google.protobuf" && name != "google.protobuf.Empty" && name != anyName
}

func fieldOf(of protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if field := of.Fields().ByJSONName(key); field != nil {
		return field
	}
	return of.Fields().ByTextName(key)
}

func unknown(of protoreflect.MessageDescriptor, key string) error {
	var names []string
	for i := range of.Fields().Len() {
		names = append(names, string(of.Fields().Get(i).Name()))
	}
	if meant := suggest.Word(key, names); meant != "" {
		return faultf("unknown field of %s; did you mean %q?", of.Name(), meant)
	}
	return faultf("unknown field of %s", of.Name())
}

// prefixed matches protojson's error prefix, whose spaces vary between builds.
var prefixed = regexp.MustCompile(`^proto:[\s\x{a0}]+(syntax error[\s\x{a0}]+)?(\(line \d+:\d+\):[\s\x{a0}]+)?`)

func says(err error) error {
	return &fault{text: quoted(prefixed.ReplaceAllString(err.Error(), ""))}
}

func shown(tree any) string {
	switch tree := tree.(type) {
	case nil:
		return "empty value"
	case []any:
		return "list"
	case map[string]any:
		return "mapping"
	default:
		return fmt.Sprintf("%q", quoted(fmt.Sprint(tree)))
	}
}

// quoted returns text from a file sanitized for a status.
func quoted(foreign string) string {
	if strings.Contains(foreign, "PRIVATE KEY") {
		return "(a private key, which is not shown)"
	}
	return text.Clean(foreign)
}
