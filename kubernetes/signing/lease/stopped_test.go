package lease

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// stoppable names the API server to a replica in a process of its own.
const stoppable = "COUNTERSIGN_TEST_LEASE_SERVER"

// short is a duration for tests in real time. A term of 3 s, the least, ends on a busy machine before the leader
// has answered.
const short = 8 * time.Second

// beStopped is a leader that calls the CA for each line of its input, without a look at its
// context: what it does first when it wakes up.
func beStopped(server string) {
	l, err := New(Config{Client: kubetest.ClientBy(http.DefaultTransport, server), Namespace: "ra", Name: "x", Identity: "stopped", Duration: short})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.Run(ctx, func(context.Context) {
		defer cancel()
		fmt.Println("leads")
		o := &countingCA{}
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			_, err := l.Client(o).CSRSign(context.Background(), ca.SignRequest{})
			fmt.Printf("%s: held: %t, calls of the CA: %d\n", input.Text(), err == nil, o.count())
		}
	})
}

func TestStoppedLeaderCallsNoCAWhenItWakesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := newAPIServer()
	server := httptest.NewServer(s)
	defer server.Close()
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), stoppable+"="+server.URL)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	leader := proctest.Start(t, cmd)
	await := func(line string) {
		t.Helper()
		leader.Log.Await(t, time.Minute, line, func(text string) bool { return strings.Contains(text, line) })
	}
	say := func(line string) {
		t.Helper()
		if _, err := fmt.Fprintln(input, line); err != nil {
			t.Fatal(err)
		}
	}
	await("leads\n")
	say("awake")
	await("awake: held: true, calls of the CA: 1")
	leader.Signal(syscall.SIGSTOP)
	follow(t, server.URL)
	say("later")
	leader.Signal(syscall.SIGCONT)
	await("later: held: false, calls of the CA: 1")
	_ = input.Close()
	<-leader.Done()
}

// follow returns when another replica has led.
func follow(t *testing.T, server string) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	l, err := New(Config{Client: kubetest.ClientBy(transport, server), Namespace: "ra", Name: "x", Identity: "follower", Duration: short})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	led := false
	l.Run(ctx, func(context.Context) {
		led = true
		cancel()
	})
	if !led {
		t.Fatalf("it is held by %q", l.Status().Holder)
	}
}
