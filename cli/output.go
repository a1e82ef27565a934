package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// Output formats.
const (
	formatTable = ""
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

// output is the -o flag: how results are printed.
type output struct {
	format    string
	noHeading bool
}

func (o *output) addFlag(cmd *cobra.Command, formats ...string) {
	oneOf(cmd, &o.format, "output", "o", "print as "+orList(slices.Clone(formats))+" instead of a table for people",
		formats...)
	if slices.Contains(formats, formatWide) {
		cmd.Flags().BoolVar(&o.noHeading, "no-headers", false, "print tables without their heading")
	}
}

// oneOf adds a flag that takes one of a few words, and offers them.
func oneOf(cmd *cobra.Command, value *string, name, short, usage string, words ...string) {
	cmd.Flags().VarP(&formatFlag{value: value, allowed: words}, name, short, usage)
	mustComplete(cmd.RegisterFlagCompletionFunc(name,
		cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// formatFlag is a flag that takes one of a few words.
type formatFlag struct {
	value   *string
	allowed []string
}

func (f *formatFlag) String() string { return *f.value }
func (f *formatFlag) Type() string   { return strings.Join(f.allowed, "|") }
func (f *formatFlag) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("one of %s is expected", strings.Join(f.allowed, ", "))
	}
	*f.value = s
	return nil
}

// writeValue prints a value as one document.
func writeValue(w io.Writer, format string, value any) error {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	if format == formatYAML {
		if b, err = yaml.JSONToYAML(shown(b)); err != nil {
			return fmt.Errorf("encode the answer as YAML: %w", err)
		}
	} else {
		b = append(escaped(b), '\n')
	}
	_, err = w.Write(b)
	return err
}

// writeStreamed prints a value as one of many: a line of JSON, or a YAML document after its separator.
func writeStreamed(w io.Writer, format string, value any) error {
	if format == formatYAML {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
		return writeValue(w, format, value)
	}
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = w.Write(append(escaped(b), '\n'))
	return err
}

// escaped is JSON in which no character is left that a terminal would act upon: JSON itself escapes only some.
func escaped(b []byte) []byte {
	var out []byte
	from := 0
	for i, r := range string(b) {
		if r != utf8.RuneError && r >= ' ' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			out = append(out, b[from:i]...)
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
			from = i + utf8.RuneLen(r)
		}
	}
	return append(out, b[from:]...)
}

// escapes matches the escape sequences of JSON strings, but not those of line breaks and tabs.
var escapes = regexp.MustCompile(`\\(?:u[0-9a-f]{4}|[bfr\\"])`)

// shown is JSON to make YAML from. In its texts the escape sequences are spelt out, as in tables: YAML would hold the
// characters themselves, and a terminal would act upon them.
func shown(b []byte) []byte {
	return escapes.ReplaceAllFunc(escaped(b), func(escape []byte) []byte {
		switch string(escape[1:]) {
		case `\`, `"`, "u003c", "u003e", "u0026": // what JSON escapes for other reasons
			return escape
		}
		return append([]byte{'\\'}, escape...)
	})
}

// mustComplete panics if a completion is registered for a flag that does not exist, which is a mistake in this package.
func mustComplete(err error) {
	if err != nil {
		panic(err)
	}
}
