package pluginhost

import (
	"debug/elf"
	"fmt"
	"os"
	"runtime"
)

// machines are Go's names of what ELF files call otherwise.
var machines = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_386: "386", elf.EM_ARM: "arm",
	elf.EM_PPC64: "ppc64", elf.EM_S390: "s390x", elf.EM_RISCV: "riscv64", elf.EM_LOONGARCH: "loong64",
}

// whyNotExecutable says more than "exec format error".
func whyNotExecutable(f *os.File) string {
	program, err := elf.NewFile(f)
	if err != nil {
		return fmt.Sprintf("it is no program for this system (%s/%s): neither an ELF file nor a script that begins with #!", runtime.GOOS, runtime.GOARCH)
	}
	found := machines[program.Machine]
	if found == "" {
		found = program.Machine.String()
	}
	return fmt.Sprintf("it is built for %s, this machine is %s; install the provider's build for %s/%s", found, runtime.GOARCH, runtime.GOOS, runtime.GOARCH)
}
