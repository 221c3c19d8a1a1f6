package workloadapi

import (
	"strings"

	"google.golang.org/protobuf/types/descriptorpb"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/internal/reflection"
)

// standardFile describes the service as the standard's own file does, which has no package; ours
// has one only for Go's registry.
func standardFile() *descriptorpb.FileDescriptorProto {
	file, err := reflection.Compiled(workloadv1.File_spiffe_workload_v1_workload_proto)
	if err != nil {
		panic(err) // of what is compiled in
	}
	ours := "." + file.GetPackage() + "."
	file.Name, file.Package = new("workload.proto"), nil
	unpack := func(name *string) {
		if name != nil {
			*name = strings.Replace(*name, ours, ".", 1)
		}
	}
	for _, message := range file.GetMessageType() {
		eachField(message, func(f *descriptorpb.FieldDescriptorProto) { unpack(f.TypeName) })
	}
	for _, service := range file.GetService() {
		for _, method := range service.GetMethod() {
			unpack(method.InputType)
			unpack(method.OutputType)
		}
	}
	return file
}

func eachField(message *descriptorpb.DescriptorProto, do func(*descriptorpb.FieldDescriptorProto)) {
	for _, field := range message.GetField() {
		do(field)
	}
	for _, nested := range message.GetNestedType() {
		eachField(nested, do)
	}
}
