package verified

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// machines maps ELF machines to GOARCH.
var machines = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_386: "386", elf.EM_ARM: "arm",
	elf.EM_PPC64: "ppc64", elf.EM_S390: "s390x", elf.EM_RISCV: "riscv64", elf.EM_LOONGARCH: "loong64",
}

// whyNotExecutable explains more than "exec format error".
func whyNotExecutable(f *os.File) string {
	if info, err := f.Stat(); err == nil && info.Size() == 0 {
		return "the file is empty; build or copy it again"
	}
	program, err := elf.NewFile(f)
	if err != nil {
		return fmt.Sprintf("not a program for this system (%s/%s): neither an ELF file nor a script that starts with #!; install the provider's build for this system", runtime.GOOS, runtime.GOARCH)
	}
	found := cmp.Or(machines[program.Machine], program.Machine.String())
	return fmt.Sprintf("built for %s, but this machine is %s; install the provider's build for %s/%s", found, runtime.GOARCH, runtime.GOOS, runtime.GOARCH)
}

// CheckProgram returns why the file at path cannot run on this machine, without running it
// and without checking its permissions.
func CheckProgram(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if isScript(f) {
		return checkInterpreter(path, scriptInterpreter(f), "its first line names")
	}
	if runtime.GOOS != "linux" {
		return nil // no ELF
	}
	program, err := elf.NewFile(f)
	if err != nil {
		return Refuse(path, "%s", whyNotExecutable(f))
	}
	if arch := machines[program.Machine]; arch != "" && arch != strings.TrimSuffix(runtime.GOARCH, "le") {
		return Refuse(path, "%s", whyNotExecutable(f))
	}
	if abi := program.OSABI; abi != elf.ELFOSABI_NONE && abi != elf.ELFOSABI_LINUX {
		return Refuse(path, "built for another system (%s); install the provider's build for %s/%s", abi, runtime.GOOS, runtime.GOARCH)
	}
	return checkInterpreter(path, loader(program), "dynamically linked with the loader")
}

// loader returns the dynamic loader that the program needs; empty: none.
func loader(program *elf.File) string {
	for _, p := range program.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err == nil {
			return string(bytes.TrimRight(text, "\x00"))
		}
	}
	return ""
}

func scriptInterpreter(f *os.File) string {
	line := make([]byte, 256)
	n, _ := f.ReadAt(line, 0)
	text, _, _ := strings.Cut(strings.TrimPrefix(string(line[:n]), "#!"), "\n")
	if words := strings.Fields(text); len(words) > 0 {
		return words[0]
	}
	return "nothing"
}

// checkInterpreter names a missing interpreter: the kernel's error is as if the program
// itself were missing.
func checkInterpreter(path, interpreter, who string) error {
	if interpreter == "" {
		return nil
	}
	if _, err := os.Stat(interpreter); errors.Is(err, os.ErrNotExist) {
		return Refuse(path, "%s %s, which does not exist; install it, or a provider built with CGO_ENABLED=0", who, text.Quote(interpreter))
	}
	return nil
}
