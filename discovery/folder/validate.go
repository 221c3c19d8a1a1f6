package folder

import (
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/text"
)

// validate checks a message and the content of its Anys against Envoy's own rules.
// visit is called for every message on the way.
func validate(m proto.Message, visit func(proto.Message)) error {
	if ruled, ok := m.(interface{ ValidateAll() error }); ok {
		if err := ruled.ValidateAll(); err != nil {
			return brokenRule(err)
		}
	}
	return descend(m.ProtoReflect(), visit)
}

func descend(m protoreflect.Message, visit func(proto.Message)) error {
	visit(m.Interface())
	if packed, ok := m.Interface().(*anypb.Any); ok {
		return unpack(packed, visit)
	}
	var err error
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		err = at(string(field.Name()), descendField(field, value, visit))
		return err == nil
	})
	return err
}

func unpack(packed *anypb.Any, visit func(proto.Message)) error {
	if packed.TypeUrl == "" {
		return nil // it is empty
	}
	if _, err := typeOf(packed.TypeUrl); err != nil {
		return at("@type", err)
	}
	inner, err := packed.UnmarshalNew()
	if err != nil {
		return says(err)
	}
	return validate(inner, visit)
}

func descendField(field protoreflect.FieldDescriptor, value protoreflect.Value, visit func(proto.Message)) (err error) {
	switch {
	case field.IsMap():
		if field.MapValue().Message() == nil {
			return nil
		}
		value.Map().Range(func(key protoreflect.MapKey, element protoreflect.Value) bool {
			err = at(key.String(), descend(element.Message(), visit))
			return err == nil
		})
	case field.Message() == nil:
	case field.IsList():
		for i := range value.List().Len() {
			if err := descend(value.List().Get(i).Message(), visit); err != nil {
				return at(index(i), err)
			}
		}
	default:
		return descend(value.Message(), visit)
	}
	return err
}

// brokenRule converts a protoc-gen-validate error to a fault. Each error names a field
// and wraps the next; the first chain is enough.
func brokenRule(err error) error {
	if many, ok := err.(interface{ AllErrors() []error }); ok && len(many.AllErrors()) > 0 {
		return brokenRule(many.AllErrors()[0])
	}
	rule, ok := err.(interface {
		Field() string
		Reason() string
		Cause() error
	})
	if !ok {
		return &fault{text: text.Clean(err.Error())}
	}
	path := fieldPath(rule.Field())
	if rule.Cause() != nil {
		return at(path, brokenRule(rule.Cause()))
	}
	return at(path, faultf("Envoy requires: %s", rule.Reason()))
}

// fieldPath returns a Go field's name as it appears in the file: VirtualHosts[0]
// becomes virtual_hosts[0].
func fieldPath(name string) string {
	var path strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			path.WriteByte('_')
		}
		path.WriteRune(unicode.ToLower(r))
	}
	return path.String()
}
