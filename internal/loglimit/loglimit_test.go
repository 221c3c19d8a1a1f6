package loglimit_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/test/logtest"
)

func TestFloodIsCutAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logtest.Log
		log := loglimit.Limit(out.Logger())
		child := log.With("authority", "a").WithGroup("g")
		for range 500 {
			log.Info("one")
			child.Info("two", "x", 1)
		}
		if n := strings.Count(out.String(), "\n"); n != 200 {
			t.Errorf("%d lines at once, want 200", n)
		}
		time.Sleep(2 * time.Second)
		log.Info("three")
		if got := out.String(); !strings.Contains(got, `msg="dropped log lines: too many" lines=800`) || !strings.Contains(got, "msg=three") || !strings.Contains(got, "authority=a g.x=1") {
			t.Error(got)
		}
		for range 500 {
			log.Info("four")
		}
		if n := strings.Count(out.String(), "msg=four"); n != 99 {
			t.Errorf("%d lines after two seconds, want 99 more", n)
		}
	})
}

func TestCalmLoggerLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logtest.Log
		log := loglimit.Limit(out.Logger())
		for range 1000 {
			log.Info("line")
			time.Sleep(20 * time.Millisecond)
		}
		if n := strings.Count(out.String(), "\n"); n != 1000 {
			t.Errorf("%d lines of 1,000", n)
		}
	})
}

func TestBucketHasARateOfItsOwn(t *testing.T) {
	now := time.Now()
	bucket := loglimit.Bucket{PerSecond: 2}
	allowed := 0
	for range 1000 {
		if _, ok := bucket.Allow(now); ok {
			allowed++
		}
		now = now.Add(100 * time.Millisecond)
	}
	if allowed < 200+2*99 || allowed > 200+2*100 {
		t.Errorf("%d lines in 100 s, want 200 and 2 a second", allowed)
	}
}

func TestRepeatedLineIsLoggedOnceAMinute(t *testing.T) {
	var r loglimit.Repeats
	now := time.Unix(1000, 0)
	for i := range 121 {
		dropped, ok := r.Allow("a", now.Add(time.Duration(i)*time.Second))
		if want := i%60 == 0; ok != want || ok && i > 0 && dropped != 59 {
			t.Errorf("after %d s: %t, %d dropped", i, ok, dropped)
		}
		if _, ok := r.Allow("b", now.Add(time.Duration(i)*time.Minute)); !ok {
			t.Errorf("the line of another client %d", i)
		}
	}
}

func TestManyKindsOfLinesShareOne(t *testing.T) {
	var r loglimit.Repeats
	lines := 0
	for i := range 5000 {
		if _, ok := r.Allow(strconv.Itoa(i), time.Unix(1000, 0)); ok {
			lines++
		}
	}
	if lines != 1001 {
		t.Errorf("%d lines", lines)
	}
}
