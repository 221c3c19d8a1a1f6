package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// moods are what no provider should do.
var moods = map[string]func() ca.Certificate{
	"panic": func() ca.Certificate { panic("a mood") },
	"die":   func() ca.Certificate { os.Exit(9); return ca.Certificate{} },
	"rave": func() ca.Certificate {
		go func() {
			for {
				fmt.Fprint(os.Stderr, strings.Repeat("x", 100_000), "\x00\a\n{\"@level\":1}\n")
			}
		}()
		return ca.Certificate{}
	},
	"hoard": func() ca.Certificate {
		for {
			if _, err := os.Open(os.DevNull); err != nil {
				return ca.Certificate{}
			}
		}
	},
	"breed": func() ca.Certificate {
		for range 50 {
			_ = exec.Command("sleep", "1000").Start()
		}
		os.Exit(9)
		return ca.Certificate{}
	},
	"boast":   func() ca.Certificate { return ca.Certificate{Chain: make([]byte, 100<<20)} },
	"babble":  func() ca.Certificate { return ca.Certificate{Chain: []byte("certificate"), Roots: []byte("root")} },
	"nothing": func() ca.Certificate { return ca.Certificate{} },
}
