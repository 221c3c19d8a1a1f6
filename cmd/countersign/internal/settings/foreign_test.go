package settings

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
)

func TestOnlyAllowedUsersServeWorkloadIdentity(t *testing.T) {
	s := config.Socket{ForeignUIDs: []uint32{4242}}
	for uid, want := range map[uint32]bool{0: true, uint32(os.Geteuid()): true, 4242: true, 4243: false} {
		if got := mayBeLeft(s, uid); got != want {
			t.Errorf("uid %d: %t, want %t", uid, got, want)
		}
	}
}

func TestNoForeignServerWithoutListener(t *testing.T) {
	synctest.Test(t, noForeignServerWithoutListener)
}

func noForeignServerWithoutListener(t *testing.T) {
	began := time.Now()
	for _, path := range []string{t.TempDir() + "/none", t.TempDir(), "/dev/null"} {
		if foreign, err := foreignAt(config.Socket{Path: path}); foreign != nil || err != nil {
			t.Errorf("%s: %v, %v", path, foreign, err)
		}
	}
	if time.Since(began) > 0 {
		t.Error("a file that is not a socket was waited for")
	}
}
