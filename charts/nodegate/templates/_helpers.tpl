{{/* The labels of what this chart adds to the objects that 'nodegate manifests' prints. */}}
{{- define "nodegate.labels" -}}
{{ include "nodegate.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What nodegate's pods are found by; the webhook's Service does, too. */}}
{{- define "nodegate.selector" -}}
app.kubernetes.io/name: nodegate
{{- end }}

{{/*
Who closes gates on new nodes. A cluster, and whoever renders for one in its name, tells which kinds it serves;
'helm template' by itself only which version it is.
*/}}
{{- define "nodegate.birth" -}}
{{- if ne .Values.birth "auto" }}{{ .Values.birth }}
{{- else if .Capabilities.APIVersions.Has "v1/Pod" }}
{{- .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" | ternary "policy" "webhook" }}
{{- else }}{{ semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version | ternary "policy" "webhook" }}
{{- end }}
{{- end }}

{{/* Texts as a list in CEL, as 'nodegate manifests' writes it. */}}
{{- define "nodegate.texts" -}}
{{- $quoted := list }}
{{- range . | uniq | sortAlpha }}{{ $quoted = append $quoted (quote .) }}{{ end -}}
[{{ join ", " $quoted }}]
{{- end }}

{{/* A list of allowed taints as CEL has it, each as key:Effect. */}}
{{- define "nodegate.taints" -}}
{{- $taints := list }}
{{- range . }}{{ $taints = append $taints (ternary . (printf "%s:NoSchedule" .) (contains ":" .)) }}{{ end -}}
{{ include "nodegate.texts" $taints }}
{{- end }}

{{- define "nodegate.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* All gates of the values, as a list of NodeGates. */}}
{{- define "nodegate.gates" -}}
{{- $root := . }}
{{- $gates := list }}
{{- if .Values.defaultGate.enabled }}
  {{- $gate := .Files.Get "files/presets/required-daemonsets.yaml" | fromYaml }}
  {{- $_ := set (index $gate.spec.openWhen 0).daemonSets "namespaces" .Values.defaultGate.namespaces }}
  {{- $gates = append $gates $gate }}
{{- end }}
{{- range $name, $preset := .Values.presets }}{{ if $preset.enabled }}
  {{- $gate := $root.Files.Get (printf "files/presets/%s.yaml" $name) | fromYaml }}
  {{- $_ := set $gate "spec" (mergeOverwrite $gate.spec (deepCopy ($preset.spec | default dict))) }}
  {{- $gates = append $gates $gate }}
{{- end }}{{ end }}
{{- range $name, $spec := .Values.gates }}
  {{- $meta := dict "name" $name }}
  {{- $gates = append $gates (dict "apiVersion" "nodegate.dev/v1alpha1" "kind" "NodeGate" "metadata" $meta "spec" $spec) }}
{{- end }}
{{- $names := list }}
{{- range $gate := $gates }}
  {{- $name := $gate.metadata.name }}
  {{- if has $name $names }}{{ fail (printf "two gates have the name %s: a preset or the default gate has it already; name the one under gates otherwise" $name) }}{{ end }}
  {{- $names = append $names $name }}
  {{- range $field := list "taint" "recloseTaint" }}{{ with get $gate.spec $field }}
    {{- $taint := printf "%s:%s" .key .effect }}
    {{- if not (has $taint (include "nodegate.taints" $root.Values.allowedTaintKeys | fromJsonArray)) }}
      {{- fail (printf "gate %s has the taint %s, which is not in allowedTaintKeys: add it there" $name $taint) }}
    {{- end }}
  {{- end }}{{ end }}
{{- end }}
{{- toYaml $gates }}
{{- end }}
