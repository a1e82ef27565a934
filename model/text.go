package model

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shorten cuts a text to at most so many bytes. The sign that shows the cut comes on top.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Printable writes out, as Go and C do, the characters that a terminal would act upon or not show. Those in keep stay
// as they are.
func Printable(s, keep string) string {
	bad := func(r rune) bool {
		return r == utf8.RuneError ||
			(unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) && !strings.ContainsRune(keep, r)
	}
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case bad(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
