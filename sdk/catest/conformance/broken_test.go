package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func resultOf(t *testing.T, results []Result, id string) Result {
	t.Helper()
	i := slices.IndexFunc(results, func(r Result) bool { return r.ID == id })
	if i < 0 {
		t.Fatalf("no result of %s", id)
	}
	return results[i]
}

func TestProviderThatAuthenticatesFirstPasses(t *testing.T) {
	t.Parallel()
	results := runAll(t, goodKit(), spoiledWire(func(_ string, args, _ any) (error, bool) {
		in, ok := args.(*providerv1.CSRSignRequest)
		return wire.ToStatus(ca.Errorf(ca.Unauthenticated, "who are you?")), ok && in.GetToken() == ""
	}))
	if failed := failedOf(results); failed != nil {
		t.Errorf("failed %v%s", failed, describe(results))
	}
}

// withoutExchange declares to exchange tokens, which its settings turn off.
func withoutExchange() func() wire.Provider {
	return wrapped(func(o *outer) { o.exchange = func(error) error { return ca.ErrUnimplemented } })
}

func TestAbilityThatSettingsTurnOffIsNotRun(t *testing.T) {
	t.Parallel()
	kit := goodKit()
	kit.AbilitiesOff = []string{"token-exchanger"}
	results := runAll(t, kit, Value(withoutExchange()))
	if failed := failedOf(results); failed != nil {
		t.Errorf("failed %v%s", failed, describe(results))
	}
	if r := resultOf(t, results, "TOKEN-01"); r.Outcome != Unrun || !strings.Contains(r.Seen, "token-exchanger") {
		t.Errorf("TOKEN-01 %s: %s", r.Outcome, r.Seen)
	}
	if r := resultOf(t, runAll(t, goodKit(), Value(withoutExchange())), "META-08"); !strings.Contains(r.Seen, "abilities_off: [token-exchanger]") {
		t.Errorf("without the kit's word META-08 says %q", r.Seen)
	}
	if failed := failedOf(runAll(t, kit, Value(good()))); !slices.Equal(failed, []string{"META-07"}) {
		t.Errorf("of one that does exchange, %v failed", failed)
	}
}

// breaking is the good provider; the connection to an instance breaks at an empty request.
func breaking() Subject {
	subject := OverWire(good())
	open := subject.Open
	subject.Open = func(ctx context.Context) (*Instance, error) {
		i, err := open(ctx)
		if err != nil {
			return nil, err
		}
		var broken atomic.Bool
		i.Conn = spoiled{i.Conn, func(_ string, args, _ any) (error, bool) {
			if in, ok := args.(*providerv1.CSRSignRequest); ok && len(in.GetCsr()) == 0 {
				broken.Store(true)
			}
			return status.Error(codes.Unavailable, "the connection is broken"), broken.Load()
		}}
		i.Provider = wire.NewRemote(i.Conn, wire.RemoteOptions{})
		return i, nil
	}
	return subject
}

func TestBrokenConnectionFailsOneCheck(t *testing.T) {
	t.Parallel()
	results := runAll(t, goodKit(), breaking())
	if failed := failedOf(results); !slices.Equal(failed, []string{"PROTO-06"}) {
		t.Errorf("failed %v%s", failed, describe(results))
	}
}

func TestProviderThatDoesNotOpenFailsOneCheck(t *testing.T) {
	t.Parallel()
	results := runAll(t, goodKit(), Subject{Form: "process", Open: func(context.Context) (*Instance, error) {
		return nil, errors.New("exec format error")
	}})
	for _, r := range results[1:] {
		if r.Outcome != Unrun {
			t.Errorf("%s %s: %s", r.ID, r.Outcome, r.Seen)
		}
	}
	if first := results[0]; first.Outcome != Failed || !strings.Contains(first.Seen, "exec format error") {
		t.Errorf("%s %s: %s", first.ID, first.Outcome, first.Seen)
	}
	if r := resultOf(t, results, "PROTO-01"); !strings.Contains(r.Seen, "exec format error, as in META-01") {
		t.Errorf("PROTO-01: %s", r.Seen)
	}
}

// A program that hangs at its start costs one timeout, not one for each check (a busy machine
// repeats the first).
func TestProviderThatCannotBeOpenedIsOpenedOnce(t *testing.T) {
	t.Parallel()
	opened := 0
	results := runAll(t, goodKit(), Subject{Form: "value", Open: func(context.Context) (*Instance, error) {
		opened++
		return nil, errors.New("no handshake")
	}})
	if failed := failedOf(results); !slices.Equal(failed, []string{"META-01"}) || opened > maxAttempts {
		t.Errorf("failed %v, opened %d times", failed, opened)
	}
}
