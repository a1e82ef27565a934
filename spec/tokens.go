package spec

import (
	"github.com/goccy/go-yaml/token"
)

// joinColons puts plain scalars with colons in them together again, where they stand between braces. There the scanner
// takes every colon for the end of a key, so that {prefixes: [2001:db8::/64]} would have a mapping in its list. YAML
// (1.2.2, 7.3.3) wants a space, a bracket or a comma behind a plain key's colon.
func joinColons(tokens token.Tokens) token.Tokens {
	depth := 0
	joined := tokens[:0]
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.MappingValueType:
			if depth == 0 || i+1 == len(tokens) {
				break
			}
			next := tokens[i+1]
			if !plain(next) || !adjacent(t, 1, next) {
				break
			}
			value, at := ":"+next.Value, t
			if n := len(joined); n > 0 && plain(joined[n-1]) &&
				adjacent(joined[n-1], len([]rune(joined[n-1].Value)), t) {
				at = joined[n-1]
				value = at.Value + value
				joined = joined[:n-1]
			} else if n > 0 && quoted(joined[n-1]) {
				break // {"a":b} is a mapping
			}
			t = token.String(value, value, at.Position)
			i++
		}
		joined = append(joined, t)
	}
	return link(joined)
}

// link tells the tokens what stands beside them.
func link(tokens token.Tokens) token.Tokens {
	for i, t := range tokens {
		t.Prev, t.Next = nil, nil
		if i > 0 {
			t.Prev, tokens[i-1].Next = tokens[i-1], t
		}
	}
	return tokens
}

// fillNulls writes out the nothing that may stand behind keys and dashes. The parser would put it in by itself, but
// moves all the tokens behind it each time, which takes minutes for a large file.
func fillNulls(tokens token.Tokens) token.Tokens {
	filled := make(token.Tokens, 0, len(tokens))
	depth := 0
	var last *token.Token // before the present one, comments left out
	for i, t := range tokens {
		filled = append(filled, t)
		switch t.Type {
		case token.CommentType:
			continue
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingValueType:
			column := t.Position.Column
			if t.Type == token.MappingValueType {
				if last == nil {
					break
				}
				column = last.Position.Column
			}
			if nothing(tokens[i+1:], t, column, depth > 0) {
				at := *t.Position
				at.Column += 2
				at.Offset += 2
				filled = append(filled, token.New("null", "null", &at))
			}
		}
		last = t
	}
	return link(filled)
}

// nothing tells whether there is no value behind the token t of an entry that begins in that column.
func nothing(behind token.Tokens, t *token.Token, column int, flow bool) bool {
	for _, next := range behind {
		switch {
		case next.Type == token.CommentType:
			continue
		case flow:
			return next.Type == token.CollectEntryType || next.Type == token.MappingEndType
		case next.Position.Line == t.Position.Line:
			return false
		case next.Type == token.SequenceEntryType && t.Type == token.MappingValueType:
			return next.Position.Column < column
		}
		return next.Position.Column <= column
	}
	return !flow
}

func quoted(t *token.Token) bool {
	return t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
}

func plain(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.IntegerType, token.FloatType, token.BinaryIntegerType, token.OctetIntegerType,
		token.HexIntegerType, token.BoolType, token.NullType, token.NanType, token.InfinityType:
		return true
	}
	return false
}

// adjacent tells whether b begins where a, so many characters long, ends.
func adjacent(a *token.Token, length int, b *token.Token) bool {
	return a.Position.Line == b.Position.Line && a.Position.Column+length == b.Position.Column
}
