{{/*
The objects of one YAML file under objects/, which are those of kustomize/ and crds/: with the release's namespace, and
what values.yaml says of them. Takes the root and a path.
*/}}
{{- define "kiln.file" }}
{{- $root := .root }}
{{- $content := $root.Files.Get .path | required (printf "the chart lacks %s: package it with symbolic links followed" .path) }}
{{- range regexSplit "(?m)^---$" ($content | replace "kiln-system" $root.Release.Namespace) -1 }}
{{- $object := fromYaml . }}
{{- if and $object.kind (ne $object.kind "Namespace") }}
{{- include "kiln.set" (dict "root" $root "object" $object) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{/* Changes .object. */}}
{{- define "kiln.set" }}
{{- $o := .object }}
{{- $role := ternary .root.Values.stream .root.Values.controller (eq $o.metadata.name "kiln-stream") }}
{{- if eq $o.kind "CustomResourceDefinition" }}
{{- if .root.Values.crds.keep }}
{{- $_ := set $o.metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") ($o.metadata.annotations | default dict)) }}
{{- end }}
{{- else if eq $o.kind "ServiceAccount" }}
{{- with $role.serviceAccountAnnotations }}{{ $_ := set $o.metadata "annotations" . }}{{ end }}
{{- else if eq $o.kind "Deployment" }}
{{- include "kiln.deployment" (dict "root" .root "role" $role "object" $o) }}
{{- end }}
{{- end }}

{{- define "kiln.deployment" }}
{{- $root := .root }}
{{- $role := .role }}
{{- $template := .object.spec.template }}
{{- $pod := $template.spec }}
{{- $container := first $pod.containers }}
{{- $_ := set .object.spec "replicas" (int $role.replicas) }}
{{- $_ := set $container "image" (include "kiln.image" (dict "root" $root "image" $root.Values.image)) }}
{{- $_ := set $container "imagePullPolicy" $root.Values.image.pullPolicy }}
{{- $_ := set $container "resources" $role.resources }}
{{- range $container.env }}
{{- if eq .name "KILN_AGENT_IMAGE" }}
{{- $_ := set . "value" (include "kiln.image" (dict "root" $root "image" $root.Values.agentImage)) }}
{{- end }}
{{- end }}
{{- $arguments := concat (empty $role.logLevel | ternary (list) (list "--log-level" $role.logLevel)) $role.extraArgs }}
{{- with $arguments }}{{ $_ := set $container "args" . }}{{ end }}
{{- with $root.Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with get $role $key }}{{ $_ := set $pod $key . }}{{ end }}
{{- end }}
{{- $_ := set $template.metadata "annotations" (merge $role.podAnnotations $template.metadata.annotations) }}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels $role.podLabels) }}
{{- end }}

{{- define "kiln.image" }}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}
