// Package orders has a program that is measured obey lines on standard input, each of
// which it answers with one line of JSON on standard output.
package orders

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Order does what its line says after the first word, and returns the answer.
type Order func(argument string) (any, error)

// Obey returns when there are no more lines. Beside the orders, by their first word,
// every program has "memory" (a [Memory], when garbage is collected and given back) and
// "cpu" (nanoseconds of user and system time).
func Obey(orders map[string]Order) error {
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word, argument, _ := strings.Cut(lines.Text(), " ")
		answer, err := carryOut(orders, word, argument)
		if err != nil {
			return err
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

func carryOut(orders map[string]Order, word, argument string) (any, error) {
	switch order := orders[word]; {
	case word == "memory":
		return readMemory(), nil
	case word == "cpu":
		return readCPU(), nil
	case order != nil:
		return order(argument)
	}
	return nil, fmt.Errorf("unknown order %q", word)
}
