{{/* The labels of the objects that this chart adds to those of 'nodegate manifests'. */}}
{{- define "nodegate.labels" -}}
{{ include "nodegate.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The selector of nodegate's pods, which the webhook's Service uses as well. */}}
{{- define "nodegate.selector" -}}
app.kubernetes.io/name: nodegate
{{- end }}

{{/*
What closes gates on new nodes: "policy" or "webhook". With a cluster, or a tool that passes the API versions of
one, Capabilities.APIVersions lists the kinds that are served; 'helm template' by itself has only KubeVersion.
*/}}
{{- define "nodegate.birth" -}}
{{- if ne .Values.birth "auto" }}{{ .Values.birth }}
{{- else if .Capabilities.APIVersions.Has "v1/Pod" }}
{{- .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" | ternary "policy" "webhook" }}
{{- else }}{{ semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version | ternary "policy" "webhook" }}
{{- end }}
{{- end }}

{{/* A CEL list of strings, in the format of 'nodegate manifests'. */}}
{{- define "nodegate.texts" -}}
{{- $quoted := list }}
{{- range . | default list | uniq | sortAlpha }}{{ $quoted = append $quoted (quote .) }}{{ end -}}
[{{ join ", " $quoted }}]
{{- end }}

{{/* The labels that exclude a Node from all gates, as a CEL list. */}}
{{- define "nodegate.optOutLabels" -}}
["node-restriction.kubernetes.io/nodegate-opt-out"{{ if .Values.allowPlainOptOut }}, "nodegate.dev/opt-out"{{ end }}]
{{- end }}

{{/* The allowed taints as a CEL list, each as key:Effect. */}}
{{- define "nodegate.taints" -}}
{{- $taints := list }}
{{- range . }}{{ $taints = append $taints (ternary . (printf "%s:NoSchedule" .) (contains ":" .)) }}{{ end -}}
{{ include "nodegate.texts" $taints }}
{{- end }}

{{/* The allowed taint keys without effects, as a list in JSON. */}}
{{- define "nodegate.taintKeys" -}}
{{- $keys := list }}
{{- range .Values.allowedTaintKeys }}{{ $keys = append $keys (splitList ":" . | first) }}{{ end -}}
{{ $keys | uniq | sortAlpha | toJson }}
{{- end }}

{{- define "nodegate.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "nodegate.agentImage" -}}
{{ .Values.agent.image.repository }}
{{- if .Values.agent.image.digest }}@{{ .Values.agent.image.digest }}{{ else }}:{{ .Values.agent.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/*
Whether to create a quota for critical priority classes in a namespace: "true" or nothing. GKE requires one outside
kube-system. The argument is a list of the root and the namespace.
*/}}
{{- define "nodegate.needsQuota" -}}
{{- $root := index . 0 }}
{{- $required := and (contains "-gke." $root.Capabilities.KubeVersion.Version) (ne (index . 1) "kube-system") }}
{{- if eq (toString $root.Values.priorityClassQuota.enabled) (ternary "auto" "true" $required) "true" }}true{{ end }}
{{- end }}

{{/* The spec of a quota that admits pods of a priority class, in practice without a limit: the agent runs on every node. */}}
{{- define "nodegate.quota" -}}
hard:
  pods: 1G
scopeSelector:
  matchExpressions:
  - scopeName: PriorityClass
    operator: In
    values: [{{ . | quote }}]
{{- end }}

{{/* Removes the keys from a map, and from the maps in it, whose value is null. */}}
{{- define "nodegate.removeNulls" -}}
{{- $map := . }}
{{- range $key, $value := . }}
  {{- if kindIs "invalid" $value }}{{ $_ := unset $map $key }}
  {{- else if kindIs "map" $value }}{{ include "nodegate.removeNulls" $value }}{{ end }}
{{- end }}
{{- end }}

{{/* All gates in the values, as a list of NodeGates. */}}
{{- define "nodegate.gates" -}}
{{- $root := . }}
{{- $gates := list }}
{{- if .Values.defaultGate.enabled }}
  {{- $gate := .Files.Get "files/presets/required-daemonsets.yaml" | fromYaml }}
  {{- $spec := .Values.defaultGate.spec | default dict }}
  {{- if hasKey $spec "openWhen" }}
    {{- fail "defaultGate.spec has openWhen, which would replace what the default gate waits for: declare another gate under gates" }}
  {{- end }}
  {{- $_ := set $gate "spec" (mergeOverwrite $gate.spec (deepCopy $spec)) }}
  {{- include "nodegate.removeNulls" $gate.spec }}
  {{- $_ := set (index $gate.spec.openWhen 0).daemonSets "namespaces" .Values.defaultGate.namespaces }}
  {{- $_ := set $gate.spec "tolerate" (and .Values.defaultGate.tolerate (eq (include "nodegate.birth" .) "policy")) }}
  {{- $gates = append $gates $gate }}
{{- end }}
{{- range $name, $preset := .Values.presets }}
{{- $warmsUp := and (eq $name "image-warm-up") $root.Values.imageWarmUp.images }}
{{- if or $preset.enabled $warmsUp }}
  {{- $gate := $root.Files.Get (printf "files/presets/%s.yaml" $name) | fromYaml }}
  {{- if $warmsUp }}
    {{- range list "nodeSelector" "openWhen" }}{{ if hasKey ($preset.spec | default dict) . }}
      {{- fail (printf "presets.image-warm-up.spec has %s, which follows from imageWarmUp if images are listed there: remove it" .) }}
    {{- end }}{{ end }}
    {{- $_ := set $gate.spec.nodeSelector "matchLabels" $root.Values.imageWarmUp.nodeSelector }}
    {{- $_ := set (index $gate.spec.openWhen 0).daemonSet "namespace" $root.Release.Namespace }}
    {{- with $root.Values.imageWarmUp.deadlineSeconds }}
      {{- $_ := set $gate.spec "deadline" (dict "readySeconds" . "action" "Open") }}
    {{- end }}
  {{- end }}
  {{- $_ := set $gate "spec" (mergeOverwrite $gate.spec (deepCopy ($preset.spec | default dict))) }}
  {{- include "nodegate.removeNulls" $gate.spec }}
  {{- $gates = append $gates $gate }}
{{- end }}{{ end }}
{{- range $name, $spec := .Values.gates }}
  {{- $meta := dict "name" $name }}
  {{- $gates = append $gates (dict "apiVersion" "nodegate.dev/v1alpha1" "kind" "NodeGate" "metadata" $meta "spec" $spec) }}
{{- end }}
{{- $names := list }}
{{- range $gate := $gates }}
  {{- $name := $gate.metadata.name }}
  {{- if has $name $names }}{{ fail (printf "two gates have the name %s, which is that of a preset or of the default gate: rename the one under gates" $name) }}{{ end }}
  {{- $names = append $names $name }}
  {{- range $field := list "taint" "recloseTaint" }}{{ with get $gate.spec $field }}
    {{- if not (and (kindIs "map" .) .key .effect) }}{{ fail (printf "gate %s: %s requires key and effect, for example {key: example.com/not-ready, effect: NoSchedule}" $name $field) }}{{ end }}
    {{- $taint := printf "%s:%s" .key .effect }}
    {{- if not (has $taint (include "nodegate.taints" $root.Values.allowedTaintKeys | fromJsonArray)) }}
      {{- fail (printf "gate %s has the taint %s, which is not in allowedTaintKeys: add it there" $name $taint) }}
    {{- end }}
  {{- end }}{{ end }}
{{- end }}
{{- toYaml $gates }}
{{- end }}

{{/*
The serving certificate of the webhook, as the data of its Secret. It is read from the cluster if it exists there, and
otherwise generated once per run; 'helm template' has no cluster to read from.
*/}}
{{- define "nodegate.webhookCertificate" -}}
{{- if not (hasKey .Values "_webhookCertificate") }}
{{- $data := (lookup "v1" "Secret" .Release.Namespace "nodegate-webhook").data | default dict }}
{{- if not (and (get $data "ca.crt") (get $data "tls.crt") (get $data "tls.key")) }}
{{- $ca := genCA "nodegate webhook CA" 3650 }}
{{- $made := genSignedCert "nodegate webhook" nil (list (printf "nodegate-webhook.%s.svc" .Release.Namespace)) 3650 $ca }}
{{- $data = dict "ca.crt" (b64enc $ca.Cert) "tls.crt" (b64enc $made.Cert) "tls.key" (b64enc $made.Key) }}
{{- end }}
{{- $_ := set .Values "_webhookCertificate" (pick $data "ca.crt" "tls.crt" "tls.key") }}
{{- end }}
{{- toYaml .Values._webhookCertificate }}
{{- end }}

{{/* The CA bundle of the webhook configuration, if Helm generates the certificate. */}}
{{- define "nodegate.webhookTrust" -}}
{{- if eq .Values.webhook.certificate "generated" }}caBundle: {{ get (include "nodegate.webhookCertificate" . | fromYaml) "ca.crt" }}{{ end }}
{{- end }}

{{/* The annotation by which cert-manager injects the CA bundle, if it issues the certificate. */}}
{{- define "nodegate.webhookAnnotations" -}}
{{- if eq .Values.webhook.certificate "certManager" }}annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/nodegate-webhook{{ end }}
{{- end }}
