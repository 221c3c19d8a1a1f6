package xds

import (
	"bytes"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// secret is the message of the only type that is reworded: Envoy rebuilds a cluster or listener
// whose bytes differ.
const secret protoreflect.FullName = "envoy.extensions.transport_sockets.tls.v3.Secret" // #nosec G101 -- a name

// reworded returns a secret that means the same as r and differs from it, by n empty lines at
// the end of a PEM text in a [core.DataSource]. It returns r where there is no such text. Envoy
// 1.40 remembers the hash of a secret before it loads it: sent again as it was, a secret that
// Envoy refused is accepted, and still not loaded.
func reworded(r *Resource, n uint8) *Resource {
	if r.Body.MessageName() != secret {
		return r
	}
	body, changed := rewordAny(r.Body, n)
	if !changed {
		return r
	}
	other := *r
	other.Body = body
	return &other
}

// rewordAny returns a changed copy of packed and reports whether it contains a PEM text.
func rewordAny(packed *anypb.Any, n uint8) (other *anypb.Any, changed bool) {
	message, err := packed.UnmarshalNew()
	if err != nil || !reword(message.ProtoReflect(), n) {
		return nil, false
	}
	other, err = anypb.New(message)
	return other, err == nil
}

// reword changes the first PEM text in m and reports whether there is one.
func reword(m protoreflect.Message, n uint8) (changed bool) {
	switch of := m.Interface().(type) {
	case *core.DataSource:
		return rewordSource(of, n)
	case *anypb.Any: // a SPIFFE validator
		other, found := rewordAny(of, n)
		if found {
			of.Value = other.GetValue()
		}
		return found
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

func rewordSource(source *core.DataSource, n uint8) bool {
	lines := strings.Repeat("\n", int(n))
	switch of := source.GetSpecifier().(type) {
	case *core.DataSource_InlineString:
		if !strings.HasPrefix(of.InlineString, "-----BEGIN ") {
			return false
		}
		of.InlineString += lines
	case *core.DataSource_InlineBytes:
		if !bytes.HasPrefix(of.InlineBytes, []byte("-----BEGIN ")) {
			return false
		}
		of.InlineBytes = append(slices.Clip(of.InlineBytes), lines...)
	default:
		return false
	}
	return true
}
