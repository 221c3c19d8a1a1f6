package xds

import (
	"bytes"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// reworded returns a resource that means the same as r and differs from it, by n empty lines at
// the end of a PEM text in a [core.DataSource]. It returns r where there is no such text. Envoy
// 1.40 remembers the hash of a secret before it loads it: sent again as it was, a secret that
// Envoy refused is accepted, and still not loaded.
func reworded(r *Resource, n uint8) *Resource {
	message, err := r.Body.UnmarshalNew()
	if err != nil || !reword(message.ProtoReflect(), n) {
		return r
	}
	body, err := anypb.New(message)
	if err != nil {
		return r
	}
	other := *r
	other.Body = body
	return &other
}

// reword changes the first PEM text in m and reports whether there is one.
func reword(m protoreflect.Message, n uint8) (changed bool) {
	if source, ok := m.Interface().(*core.DataSource); ok {
		text := source.GetInlineBytes()
		if !bytes.HasPrefix(text, []byte("-----BEGIN ")) {
			return false
		}
		text = append(slices.Clip(text), strings.Repeat("\n", int(n))...)
		source.Specifier = &core.DataSource_InlineBytes{InlineBytes: text}
		return true
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				changed = changed || reword(value.List().Get(i).Message(), n)
			}
		default:
			changed = reword(value.Message(), n)
		}
		return !changed
	})
	return changed
}
