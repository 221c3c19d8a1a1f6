package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// moods are what no provider should do.
var moods = map[string]func(ca.SignRequest) (ca.Certificate, error){
	"panic": func(ca.SignRequest) (ca.Certificate, error) { panic("a mood") },
	"die":   func(ca.SignRequest) (ca.Certificate, error) { os.Exit(9); return ca.Certificate{}, nil },
	"rave": func(ca.SignRequest) (ca.Certificate, error) {
		go func() {
			for {
				fmt.Fprint(os.Stderr, strings.Repeat("x", 100_000), "\x00\a\n{\"@level\":1}\n")
			}
		}()
		return ca.Certificate{}, nil
	},
	"hoard": func(ca.SignRequest) (ca.Certificate, error) {
		for {
			if _, err := os.Open(os.DevNull); err != nil {
				return ca.Certificate{}, nil
			}
		}
	},
	"breed": func(ca.SignRequest) (ca.Certificate, error) {
		for range 50 {
			_ = exec.Command("sleep", "1000").Start()
		}
		os.Exit(9)
		return ca.Certificate{}, nil
	},
	"boast": func(ca.SignRequest) (ca.Certificate, error) { return ca.Certificate{Chain: make([]byte, 100<<20)}, nil },
	"babble": func(ca.SignRequest) (ca.Certificate, error) {
		return ca.Certificate{Chain: []byte("certificate"), Roots: []byte("root")}, nil
	},
	"blab": func(req ca.SignRequest) (ca.Certificate, error) {
		token := req.Token.Reveal()
		return ca.Certificate{}, ca.Errorf(ca.Denied, "your token %s (%q, %s) is not good", token, token, token[:len(token)/2])
	},
	"nothing": func(ca.SignRequest) (ca.Certificate, error) { return ca.Certificate{}, nil },
}
