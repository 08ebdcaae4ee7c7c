// SPDX-License-Identifier: Apache-2.0

package jsonclient

import (
	"encoding/json"
	"fmt"
	"io"
)

// eachItem calls a function with each item of a list, and returns the resource version of the
// list. It holds one item at a time.
func eachItem(list io.Reader, do func(item json.RawMessage) error) (version string, err error) {
	d := json.NewDecoder(list)
	if err := expect(d, json.Delim('{')); err != nil {
		return "", err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "metadata":
			var metadata Metadata
			err = d.Decode(&metadata)
			version = metadata.ResourceVersion
		case "items":
			err = eachElement(d, do)
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return "", err
		}
	}
	if err := expect(d, json.Delim('}')); err != nil {
		return "", err // it ends early
	}
	if version == "" {
		return "", fmt.Errorf("the list has no resource version")
	}
	return version, nil
}

// eachElement calls a function with each element of an array, which may be null.
func eachElement(d *json.Decoder, do func(json.RawMessage) error) error {
	start, err := d.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return fmt.Errorf("the items are %v, not an array", start)
	}
	for d.More() {
		var item json.RawMessage
		if err := d.Decode(&item); err != nil {
			return err
		}
		if err := do(item); err != nil {
			return err
		}
	}
	return expect(d, json.Delim(']'))
}

// expect reads a delimiter.
func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("got %v, want %v", token, want)
	}
	return nil
}
