package reflection

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Compiled returns a file of Go's registry as protoc-gen-go compiled it in. Only the Go type of a
// message or of an enumeration returns its bytes: a file that has only extensions is made from its
// descriptor, without their JSON names, which no client uses.
func Compiled(file protoreflect.FileDescriptor) (*descriptorpb.FileDescriptorProto, error) {
	zipped := bytesOf(file)
	if zipped == nil {
		return extensionsOnly(file)
	}
	reader, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	made := &descriptorpb.FileDescriptorProto{}
	return made, proto.Unmarshal(raw, made)
}

// bytesOf returns the file as its first message or enumeration has it, compressed by gzip; nil:
// neither has it.
func bytesOf(file protoreflect.FileDescriptor) []byte {
	if file.Messages().Len() > 0 {
		found, err := protoregistry.GlobalTypes.FindMessageByName(file.Messages().Get(0).FullName())
		if err != nil {
			return nil
		}
		if message, ok := found.Zero().Interface().(interface{ Descriptor() ([]byte, []int) }); ok {
			zipped, _ := message.Descriptor()
			return zipped
		}
	}
	if file.Enums().Len() > 0 {
		found, err := protoregistry.GlobalTypes.FindEnumByName(file.Enums().Get(0).FullName())
		if err != nil {
			return nil
		}
		if enum, ok := found.New(0).(interface{ EnumDescriptor() ([]byte, []int) }); ok {
			zipped, _ := enum.EnumDescriptor()
			return zipped
		}
	}
	return nil
}

// extensionsOnly makes a file that has nothing but extensions.
func extensionsOnly(file protoreflect.FileDescriptor) (*descriptorpb.FileDescriptorProto, error) {
	if file.Messages().Len() > 0 || file.Enums().Len() > 0 || file.Services().Len() > 0 {
		return nil, fmt.Errorf("file %q is not compiled in: %w", file.Path(), protoregistry.NotFound)
	}
	made := &descriptorpb.FileDescriptorProto{Name: new(file.Path()), Package: new(string(file.Package())), Options: file.Options().(*descriptorpb.FileOptions)}
	if file.Syntax() != protoreflect.Proto2 {
		made.Syntax = new(file.Syntax().String())
	}
	for i := range file.Imports().Len() {
		made.Dependency = append(made.Dependency, file.Imports().Get(i).Path())
	}
	for i := range file.Extensions().Len() {
		made.Extension = append(made.Extension, extensionOf(file.Extensions().Get(i)))
	}
	return made, nil
}

func extensionOf(x protoreflect.ExtensionDescriptor) *descriptorpb.FieldDescriptorProto {
	made := &descriptorpb.FieldDescriptorProto{
		Name: new(string(x.Name())), Number: new(int32(x.Number())),
		Label: descriptorpb.FieldDescriptorProto_Label(x.Cardinality()).Enum(), Type: descriptorpb.FieldDescriptorProto_Type(x.Kind()).Enum(),
		Extendee: new("." + string(x.ContainingMessage().FullName())), Options: x.Options().(*descriptorpb.FieldOptions),
	}
	switch {
	case x.Message() != nil:
		made.TypeName = new("." + string(x.Message().FullName()))
	case x.Enum() != nil:
		made.TypeName = new("." + string(x.Enum().FullName()))
	}
	return made
}
