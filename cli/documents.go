package cli

import (
	"encoding/json"

	"github.com/goccy/go-yaml"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec"
)

// parse reads a file's networks.
func (s source) parse() ([]model.Network, error) { return spec.Parse(s.name, s.data, spec.Options{}) }

func formatNetwork(n model.Network) ([]byte, error) {
	b, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(b)
}
