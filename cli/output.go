package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

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
	cmd.Flags().VarP(&formatFlag{value: &o.format, allowed: formats}, "output", "o",
		"print as "+orList(slices.Clone(formats))+" instead of a table for people")
	mustComplete(cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
	if slices.Contains(formats, formatWide) {
		cmd.Flags().BoolVar(&o.noHeading, "no-headers", false, "print tables without their heading")
	}
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
		if b, err = yaml.JSONToYAML(b); err != nil {
			return fmt.Errorf("encode the answer as YAML: %w", err)
		}
	} else {
		b = append(b, '\n')
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
	_, err = w.Write(append(b, '\n'))
	return err
}

// mustComplete panics if a completion is registered for a flag that does not exist, which is a mistake in this package.
func mustComplete(err error) {
	if err != nil {
		panic(err)
	}
}
