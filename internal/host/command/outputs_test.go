package command

import (
	"os/exec"
	"testing"
	"testing/synctest"
	"time"
)

// On a busy machine, what reads the output may have its turn long after the program has ended.
func TestOutputThatIsReadLateIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &Head{Most: 100}
		o, err := newOutputs(exec.Command("program"), said, said)
		if err != nil {
			t.Fatal(err)
		}
		defer o.close()
		if _, err := o.copies[0].child.WriteString("the last words"); err != nil {
			t.Fatal(err)
		}
		o.closeChild()
		held := make(chan bool)
		go func() { held <- o.end() }()
		time.Sleep(2 * lastWords)
		o.start()
		if <-held || string(said.Bytes()) != "the last words" {
			t.Errorf("it is taken for held by another process, and %q was read", said.Bytes())
		}
	})
}
