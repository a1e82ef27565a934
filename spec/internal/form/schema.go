package form

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// Schema is a JSON Schema (draft 2020-12), as far as files need it. Its fields are in the order in which they are
// written.
type Schema struct {
	Version              string             `json:"$schema,omitempty"`
	Ref                  string             `json:"$ref,omitempty"`
	Definitions          map[string]*Schema `json:"$defs,omitempty"`
	AnyOf                []*Schema          `json:"anyOf,omitempty"`
	Items                *Schema            `json:"items,omitempty"`
	Properties           Properties         `json:"properties,omitempty"`
	PatternProperties    map[string]*Schema `json:"patternProperties,omitempty"`
	AdditionalProperties any                `json:"additionalProperties,omitempty"` // false, or a Schema
	Type                 string             `json:"type,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Maximum              json.Number        `json:"maximum,omitempty"`
	Minimum              json.Number        `json:"minimum,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	MaxProperties        int                `json:"maxProperties,omitempty"`
	MinProperties        int                `json:"minProperties,omitempty"`
	Required             []string           `json:"required,omitempty"`
	Title                string             `json:"title,omitempty"`
	Description          string             `json:"description,omitempty"`
	Examples             []any              `json:"examples,omitempty"`

	Of reflect.Type `json:"-"` // the struct that Ref refers to
}

// Properties are an object's keys in their order.
type Properties []Property

// Property is one key of an object.
type Property struct {
	Name   string
	Schema *Schema
}

// MarshalJSON writes them as an object.
func (p Properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i, of := range p {
		fmt.Fprintf(&b, "%c%q:", "{,"[min(i, 1)], of.Name)
		if err := e.Encode(of.Schema); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
