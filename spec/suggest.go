package spec

import (
	"slices"
	"strings"
)

// suggest reads `did you mean "cpu"?`, or tells what there is.
func suggest[T any](word string, known map[string]T) string {
	names := make([]string, 0, len(known))
	for k := range known {
		names = append(names, k)
	}
	slices.Sort(names)
	best, least := "", 3
	for _, n := range names {
		d := distance(strings.ToLower(word), n)
		if strings.HasPrefix(n, strings.ToLower(word)) || strings.HasPrefix(strings.ToLower(word), n) {
			d = min(d, 2)
		}
		if d < least && d < max(len(word), 2) {
			best, least = n, d
		}
	}
	if best != "" {
		return `did you mean "` + best + `"?`
	}
	return "there are " + strings.Join(names, ", ")
}

// distance is Levenshtein's, with a swap of neighbours counted once; long words are far from everything.
func distance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return 40
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
