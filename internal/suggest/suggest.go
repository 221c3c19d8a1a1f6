// Package suggest finds the word that was probably meant by a mistyped one: [Word] returns the
// nearest known word.
package suggest

import "strings"

// Word returns the known word that a mistyped one most likely means, or "" if none is near. It
// ignores case.
func Word(word string, known []string) string {
	best, most := "", max(2, len(word)/3)
	for _, candidate := range known {
		if n := distance(strings.ToLower(word), strings.ToLower(candidate)); n <= most && n < len(candidate) {
			best, most = candidate, n-1
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
