{{/*
countersign.read: the objects in a file of the Kustomize bases, as a JSON list, in the release's
namespace and with its labels. Call it with the dict root, file, app.
*/}}
{{- define "countersign.read" -}}
{{- $text := .root.Files.Get (printf "files/kustomize/%s" .file) -}}
{{- if not $text }}{{ fail (printf "The chart lacks files/kustomize/%s: package it by `helm package`, which follows symbolic links." .file) }}{{ end -}}
{{- $objects := list -}}
{{- range splitList "\n---\n" $text -}}
{{- $objects = append $objects (include "countersign.placed" (dict "root" $.root "app" $.app "object" (fromYaml .)) | fromJson) -}}
{{- end -}}
{{- toJson $objects -}}
{{- end -}}

{{- define "countersign.placed" -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $global := list "ClusterRole" "ClusterRoleBinding" "CustomResourceDefinition" "ValidatingAdmissionPolicy" "ValidatingAdmissionPolicyBinding" -}}
{{- if not (has .object.kind $global) }}{{ $_ := set .object.metadata "namespace" $namespace }}{{ end -}}
{{- range .object.subjects }}{{ $_ := set . "namespace" $namespace }}{{ end -}}
{{- $_ := set .object.metadata "labels" (merge (include "countersign.labels" . | fromYaml) (.root.Values.commonLabels | default dict)) -}}
{{- include "countersign.metadata" (dict "metadata" .object.metadata "values" (dict "annotations" .root.Values.commonAnnotations)) -}}
{{- toJson .object -}}
{{- end -}}

{{- define "countersign.labels" -}}
app.kubernetes.io/name: {{ .app }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: countersign
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "countersign.print" -}}
{{- range . }}
---
{{ toYaml . }}
{{- end }}
{{ end -}}

{{- define "countersign.image" -}}
{{- $registry := required "image.registry is not set: write what comes before the names of the images, such as ghcr.io/countersign-dev/countersign." .root.Values.image.registry -}}
{{- $registry }}/{{ .name }}{{ if not (contains "@" .name) }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* countersign.port: the port of an address such as ":15021", or nothing. */}}
{{- define "countersign.port" -}}
{{- with . }}{{ regexFind "[0-9]+$" . }}{{ end -}}
{{- end -}}

{{/*
countersign.configmap: the program's file, and the files beside it, as JSON. Call it with the dict
root, app, name, file, config, files.
*/}}
{{- define "countersign.configmap" -}}
{{- $data := merge (dict .file (toYaml .config)) .files -}}
{{- $object := dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" (dict "name" .name) "data" $data -}}
{{- include "countersign.placed" (dict "root" .root "app" .app "object" $object) -}}
{{- end -}}
