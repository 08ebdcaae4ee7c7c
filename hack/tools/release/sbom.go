// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom returns the CycloneDX SBOM of a Go program: the modules that the go command has
// recorded in it, and the version of Go. If version is empty, that of the program is also
// the recorded one. The SBOM does not depend on the time or the directory.
func sbom(program []byte, version string) (*cdx.BOM, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("reading the program's modules: %w", err)
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	sum := sha256.Sum256(program)
	if version != "" {
		info.Main.Version = version
	}
	main := component(&info.Main, cdx.ComponentTypeApplication)
	main.Name = info.Path
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	properties := []cdx.Property{{Name: "nodegate:platform", Value: settings["GOOS"] + "/" + settings["GOARCH"]}}
	if commit := settings["vcs.revision"]; commit != "" {
		properties = append(properties, cdx.Property{Name: "nodegate:commit", Value: commit})
	}
	main.Properties = &properties

	std := component(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}, cdx.ComponentTypeLibrary)
	parts, refs := []cdx.Component{std}, []string{std.BOMRef}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		part := component(module, cdx.ComponentTypeLibrary)
		parts, refs = append(parts, part), append(refs, part.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(sum)
	bom.Metadata = &cdx.Metadata{Timestamp: settings["vcs.time"], Component: &main}
	bom.Components = &parts
	// A program does not record which module requires which.
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bom, nil
}

func component(module *debug.Module, kind cdx.ComponentType) cdx.Component {
	url := "pkg:golang/" + module.Path + "@" + strings.ReplaceAll(module.Version, "+", "%2B")
	c := cdx.Component{BOMRef: url, Type: kind, Name: module.Path, Version: module.Version, PackageURL: url}
	if module.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "nodegate:go.sum", Value: module.Sum}}
	}
	return c
}

// serial returns a custom UUID (RFC 9562, version 8) that is derived from a digest, so that
// the same program has the same one.
func serial(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// sbomText encodes an SBOM as JSON of version 1.6, which most tools support.
func sbomText(program []byte, version string) ([]byte, error) {
	bom, err := sbom(program, version)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("encoding the SBOM: %w", err)
	}
	return text.Bytes(), nil
}

// writeSBOMs writes an SBOM for each program in the archives and in the images.
func writeSBOMs(dist, version string) error {
	programs, err := archivedPrograms(dist)
	if err != nil {
		return err
	}
	for _, i := range images {
		platforms, err := i.platforms(dist)
		if err != nil {
			return err
		}
		for _, image := range platforms {
			programs = append(programs, image.programs...)
		}
	}
	for _, p := range programs {
		text, err := sbomText(p.content, version)
		if err != nil {
			return fmt.Errorf("creating the SBOM of %s: %w", p.name, err)
		}
		if err := os.WriteFile(p.sbomPath(dist), text, 0o644); err != nil {
			return fmt.Errorf("writing an SBOM: %w", err)
		}
	}
	return nil
}
