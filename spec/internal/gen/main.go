// Command gen writes the JSON Schema of polyplane's files and docs/file-format.md from the form's Go types and their
// comments. It runs in the directory spec, by `go generate ./spec`.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	files, err := generate("internal")
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join("..", name), data, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

// generate returns the generated files by their paths in the repository; internal is where the form's sources are.
func generate(internal string) (map[string][]byte, error) {
	c, err := readComments(filepath.Join(internal, "form"))
	if err != nil {
		return nil, err
	}
	schema, err := c.schema()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"schema/polyplane.schema.json": schema, "docs/file-format.md": c.page()}, nil
}
