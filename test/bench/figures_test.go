// Package bench measures the figures of docs/figures.md: `make bench`. All of them come
// from one run, as medians; ratios and differences within it are what counts. Names of
// figures as arguments measure these alone: agent, boundary, streams, agent-streams, tls,
// key-types, identities, names, fleet, jwt, discovery, author (make bench FIGURES=tls). With -page
// FILE they are written into that page.
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/figures"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/providers/file/fileca"
)

// ordinary is the user that agents are measured as, where this one is root.
const ordinary = 65534

var page = flag.String("page", "", "write the figures into this page, between its marks")

// BenchmarkFigures measures them once, whatever -benchtime says: each has its own rounds.
func BenchmarkFigures(b *testing.B) {
	root, err := programs.Root()
	if err != nil {
		b.Fatal(err)
	}
	b.Chdir(root)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a line for each of 10,000 rotations is not measured
	measure := func() error { return measured(flag.Args()) }
	if *page == "" {
		err = measure()
	} else {
		err = figures.Write(*page, "make bench", measure)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// measured prints those that are wanted; none named are all.
func measured(wanted []string) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	var failed []error
	for _, figure := range []struct {
		name    string
		measure func() error
	}{{"agent", b.agent}, {"boundary", b.boundary}, {"streams", b.streams}, {"agent-streams", b.streamsOfAgent}, {"tls", measureTLS}, {"key-types", measureKeyTypes}, {"identities", b.identities}, {"names", b.names}, {"fleet", measureFleet}, {"jwt", b.jwtSVIDs}, {"discovery", b.discovery}, {"author", b.author}} {
		if len(wanted) == 0 || slices.Contains(wanted, figure.name) {
			failed = append(failed, figure.measure())
		}
	}
	return errors.Join(failed...)
}

// agent measures the agent with its provider as processes.
func (b *bench) agent() error {
	fmt.Println("| figure | median |\n|---|---|")
	return errors.Join(b.starts(), b.respawn(), b.memory(), b.least())
}

// bench is a folder with programs and a CA.
type bench struct {
	dir  string
	root string // programs that only root may write
	own  string // the same, owned by the user who runs them
	ca   string
	uid  uint32
}

func newBench() (*bench, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, root: filepath.Join(dir, "root"), own: filepath.Join(dir, "own"), ca: filepath.Join(dir, "ca"), uid: uint32(os.Geteuid())}
	if b.uid == 0 {
		b.uid = ordinary
	} else {
		fmt.Println("(not root: agents run as this user, so that every provider is started from a copy in memory)")
	}
	return b, errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "receipts"), 0o700), b.install(b.root), b.install(b.own), b.makeCA(), b.giveAway(b.own), b.giveAway(b.ca), b.giveAway(filepath.Join(dir, "receipts")))
}

// install puts the programs into a folder.
func (b *bench) install(to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, program := range []string{"countersign", "countersign-provider-file", "countersign-provider-citadel", "countersign-provider-acme"} {
		if err := unpack(filepath.Join("bin", program), filepath.Join(to, program)); err != nil {
			return fmt.Errorf("%w (make build)", err)
		}
	}
	return errors.Join(compile("./test/bench/agent", filepath.Join(to, "agent")),
		compile("./test/bench/fixed", filepath.Join(to, "countersign-provider-fixed")),
		compile("./test/bench/bareserver", filepath.Join(to, "bareserver")),
		compile("./test/bench/streamserver", filepath.Join(to, "streamserver")),
		compile("./test/bench/discoveryserver", filepath.Join(to, "discoveryserver")))
}

// unpack copies a program by writes of 32 KiB, as container runtimes unpack images. One write would
// make huge pages in the page cache, of which Linux 6.18 maps each page at any access.
func unpack(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{out}, struct{ io.Reader }{in})
	return errors.Join(err, out.Close())
}

// compile builds a program as the Makefile does.
func compile(pkg, to string) error {
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", to, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	return build.Run()
}

// makeCA makes a self-signed one, once for all runs.
func (b *bench) makeCA() error {
	c, err := fileca.Open(context.Background(), fileca.Settings{Dir: b.ca, SelfSigned: true})
	if err != nil {
		return err
	}
	return c.Close()
}

func (b *bench) giveAway(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, int(b.uid), int(b.uid)))
	})
}

// command runs a program as the ordinary user, in a folder of its own.
func (b *bench) command(path string, args ...string) (*exec.Cmd, error) {
	home, err := os.MkdirTemp(b.dir, "run")
	if err != nil {
		return nil, err
	}
	if err := b.giveAway(home); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/bin:/bin"}
	return asUser(cmd, b.uid), nil
}

// asUser has a program run as a user, where this one is root.
func asUser(cmd *exec.Cmd, uid uint32) *exec.Cmd {
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	return cmd
}

func row(figure, value string) { fmt.Printf("| %s | %s |\n", figure, value) }

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
