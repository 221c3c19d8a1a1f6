package provider_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func TestPolledRootsAreReportedWhenTheyChange(t *testing.T) {
	one, two := catest.NewCA(catest.Options{}).Bundle().PEM(), catest.NewCA(catest.Options{}).Bundle().PEM()
	both, other := bytes.Join([][]byte{one, two}, nil), bytes.Join([][]byte{two, one}, nil)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answers := [][]byte{one, one, both, other, two}
		var asked []time.Time
		watcher := provider.PollRoots(time.Minute, func(context.Context) ([]byte, error) {
			asked = append(asked, time.Now())
			return answers[min(len(asked), len(answers))-1], nil
		})
		var told [][]byte
		err := watcher.WatchRoots(ctx, func(roots []byte) error {
			if told = append(told, roots); len(told) == 3 {
				time.AfterFunc(10*time.Minute, cancel)
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) || len(told) != 3 || !bytes.Equal(told[1], both) || !bytes.Equal(told[2], two) {
			t.Errorf("notified %d times, %v", len(told), err)
		}
		steps := map[time.Duration]bool{}
		for i, at := range asked[1:] {
			step := at.Sub(asked[i])
			if steps[step] = true; step < 54*time.Second || step > 66*time.Second {
				t.Errorf("asked after %s", step)
			}
		}
		if len(steps) < 2 {
			t.Error("it asks in step")
		}
	})
}

func TestFailedPollOrReportEndsWatch(t *testing.T) {
	roots := catest.NewCA(catest.Options{}).Bundle().PEM()
	no := errors.New("no")
	for name, test := range map[string]struct {
		answer []byte
		fails  error
		report error
		want   error
	}{
		"authority away": {nil, ca.ErrUnavailable, nil, ca.ErrUnavailable}, "no certificates": {[]byte("x"), nil, nil, ca.ErrInternal}, "host gone": {roots, nil, no, no},
	} {
		watcher := provider.PollRoots(0, func(context.Context) ([]byte, error) { return test.answer, test.fails })
		if err := watcher.WatchRoots(t.Context(), func([]byte) error { return test.report }); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestEmbeddedPollerIsAnAbility(t *testing.T) {
	type authority struct {
		ca.Client
		provider.RootWatcher
	}
	m, err := provider.Define("x", "1", func(context.Context, struct{}) (*authority, error) { return nil, nil }).Provider().Metadata(t.Context())
	if err != nil || len(m.Abilities) != 2 || m.Abilities[1].String() != "root-watcher" {
		t.Errorf("got %v, %v", m.Abilities, err)
	}
}
