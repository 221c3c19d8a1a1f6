package broker_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	api "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/host/process"
	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/identities"
)

// alike resolves each PID to this process, held anew, as a workload of one of some identities.
type alike struct{ identities int32 }

func (a alike) Resolve(_ context.Context, reference *anypb.Any, ended func(error)) (broker.Workload, error) {
	var in api.WorkloadPIDReference
	if err := reference.UnmarshalTo(&in); err != nil {
		return broker.Workload{}, err
	}
	held, err := process.Hold(int32(os.Getpid()), func() { ended(nil) })
	if err != nil {
		return broker.Workload{}, err
	}
	id := fmt.Sprintf("%sw%d", domain, in.GetPid()%a.identities)
	check := func() error { _, _, err := held.User(); return err }
	return broker.Workload{SPIFFEID: id, Name: in.String(), Check: check, Release: func() { _ = held.Close() }}, nil
}

// 1,000 references on one connection, each to a process that is held, with the client in the same
// process: memory of one, and the CPU of a rotation of all, with the CA's signatures.
func BenchmarkThousandReferences(b *testing.B) {
	const references = 1000
	for _, n := range []int32{1, references} {
		b.Run(fmt.Sprintf("identities=%d", n), func(b *testing.B) {
			e := start(b, func(cfg *broker.Config, many *identities.Config) {
				cfg.Resolvers[broker.PID] = alike{n}
				many.Limits.Streams = references
			})
			client, before := e.dial(e.ca, proxy), inUse()
			var streams []svids
			var leaves []string
			for i := range int32(references) {
				streams = append(streams, e.subscribe(client, pid(b, i+1)))
				leaves = append(leaves, string(svid(b, streams[i]).GetX509Svid()))
			}
			memory, busy := inUse()-before, cpu(b)
			for range b.N {
				e.ca.Rotate()
				for i, stream := range streams {
					was := leaves[i]
					for leaves[i] == was { // the root goes first
						leaves[i] = string(svid(b, stream).GetX509Svid())
					}
				}
			}
			b.ReportMetric(float64(memory)/references/1024, "KiB/reference")
			b.ReportMetric(float64((cpu(b)-busy).Milliseconds())/float64(b.N), "cpu-ms/rotation")
		})
	}
}

// inUse returns the bytes of the heap and of stacks.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
