package main

import (
	"bufio"
	"io"
	"log"
	"strconv"
	"strings"
)

// obey sets the values in the lines.
func obey(lines io.Reader, f *features) {
	for scanner := bufio.NewScanner(lines); scanner.Scan(); {
		words := strings.Fields(scanner.Text())
		if len(words) != 3 {
			log.Printf("want namespace, key and number, got %q", scanner.Text())
			continue
		}
		number, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			log.Printf("%q is not a number", words[2])
			continue
		}
		f.Set(words[0], words[1], number)
	}
}
