package ask_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
)

func TestHundredDecidersMakeNoHundredTimesAsManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{latency: 20 * time.Millisecond}
		shared := ask.NewShared()
		quiet := ask.Remember(d, ask.Limits{Shared: shared})
		defer quiet.Close()
		end := time.Now().Add(5 * time.Second)
		var floods []func()
		for i := range 100 {
			m := ask.Remember(d, ask.Limits{Shared: shared})
			defer m.Close()
			floods = append(floods, flood(t, m, 20, random(fmt.Sprintf("shop%d.example", i)), end))
		}
		for i := range 4 {
			time.Sleep(time.Second)
			began := time.Now()
			allowed, err := quiet.Allowed(t.Context(), fmt.Sprintf("yes%d.example.org", i))
			if took := time.Since(began); !allowed || took > time.Second {
				t.Errorf("a name of a decider without a flood: %v, %v after %s", allowed, err, took)
			}
		}
		for _, wait := range floods {
			wait()
		}
		d.checkRate(t, 4*50)
	})
}

func TestDecidersThatHangLeaveCallsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := &decider{latency: time.Hour}
		shared := ask.NewShared()
		var all sync.WaitGroup
		for range 100 {
			m := ask.Remember(hangs, ask.Limits{Shared: shared})
			defer m.Close()
			for i := range 20 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
					defer cancel()
					_, _ = m.Allowed(ctx, fmt.Sprintf("yes%d.example.org", i))
				})
			}
		}
		time.Sleep(8 * time.Second)
		good := ask.Remember(&decider{}, ask.Limits{Shared: shared})
		defer good.Close()
		for i := range 5 {
			began := time.Now()
			allowed, err := good.Allowed(t.Context(), fmt.Sprintf("yes%d.example.org", i))
			if took := time.Since(began); !allowed || took > time.Second {
				t.Errorf("%v, %v after %s", allowed, err, took)
			}
		}
		all.Wait()
		if most := hangs.mostAtOnce(); most > 4*16+2*100 {
			t.Errorf("%d calls at once", most)
		}
	})
}

func TestClosedMemoryReturnsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := ask.NewShared()
		for range 300 {
			m := ask.Remember(&decider{latency: time.Hour}, ask.Limits{Shared: shared})
			for i := range 20 {
				go func() { _, _ = m.Allowed(t.Context(), fmt.Sprintf("yes%d.example.org", i)) }()
			}
			synctest.Wait()
			m.Close()
		}
		time.Sleep(time.Second)
		good := ask.Remember(&decider{}, ask.Limits{Shared: shared})
		defer good.Close()
		began := time.Now()
		if allowed, err := good.Allowed(t.Context(), "yes.example.org"); !allowed || time.Since(began) > 10*time.Millisecond {
			t.Errorf("%v, %v after %s", allowed, err, time.Since(began))
		}
	})
}
