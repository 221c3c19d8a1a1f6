package main

import (
	"bufio"
	"io"
	"log"
	"strconv"
	"strings"
)

// obey sets what the lines say.
func obey(lines io.Reader, f *features) {
	for scanner := bufio.NewScanner(lines); scanner.Scan(); {
		words := strings.Fields(scanner.Text())
		if len(words) != 3 {
			log.Printf("%q is not: namespace, key, number", scanner.Text())
			continue
		}
		number, err := strconv.ParseFloat(words[2], 64)
		if err != nil {
			log.Printf("%q is no number", words[2])
			continue
		}
		f.Set(words[0], words[1], number)
	}
}
