// Package suggest finds the word that was probably meant by a mistyped one: [Word] returns the
// nearest known word.
package suggest

import "strings"

// Word returns the known word that a mistyped one most likely means, or "" if none is near. It
// ignores case.
func Word(word string, known []string) string {
	best, most := "", max(len(word)/3, 1)
	if len(word) > 3 { // two edits turn most words of three letters into another
		most = max(most, 2)
	}
	for _, candidate := range known {
		if n := distance(strings.ToLower(word), strings.ToLower(candidate)); n <= most && n < len(candidate) {
			best, most = candidate, n-1
		}
	}
	return best
}

// distance is the number of letters to insert, to remove, to change, or to swap with their
// neighbor.
func distance(a, b string) int {
	var before []int // the row before the last
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := append(make([]int, 0, len(b)+1), i+1)
		for j := range len(b) {
			n := last[j]
			if a[i] != b[j] {
				n++
			}
			n = min(n, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				n = min(n, before[j-1]+1)
			}
			row = append(row, n)
		}
		before, last = last, row
	}
	return last[len(b)]
}
