{{/*
countersign.values changes an object of a part by the values that concern only what Kubernetes does
with it. Call it with the dict root, part, object. It prints nothing.
*/}}
{{- define "countersign.values" -}}
{{- $part := .part -}}
{{- $object := .object -}}
{{- $service := eq (include "countersign.bundle.service" $object) "yes" | ternary $part.bundleService $part.service | default dict -}}
{{- if eq $object.kind "ServiceAccount" -}}
{{- include "countersign.metadata" (dict "metadata" $object.metadata "values" $part.serviceAccount) -}}
{{- else if eq $object.kind "Service" -}}
{{- include "countersign.metadata" (dict "metadata" $object.metadata "values" $service) -}}
{{- with $service.type }}{{ $_ := set $object.spec "type" . }}{{ end -}}
{{- else if eq $object.kind "PodDisruptionBudget" -}}
{{- with $part.disruptionBudget }}{{ $_ := set $object "spec" (merge (deepCopy .) (pick $object.spec "selector")) }}{{ end -}}
{{- else if has $object.kind (list "Deployment" "DaemonSet") -}}
{{- with $part.strategy }}{{ $_ := set $object.spec (eq $object.kind "Deployment" | ternary "strategy" "updateStrategy") . }}{{ end -}}
{{- $template := $object.spec.template -}}
{{- include "countersign.metadata" (dict "metadata" $template.metadata "values" (dict "labels" $part.podLabels "annotations" $part.podAnnotations)) -}}
{{- end -}}
{{- end -}}

{{/* countersign.metadata adds labels and annotations. What the chart sets itself stays. */}}
{{- define "countersign.metadata" -}}
{{- $values := .values | default dict -}}
{{- $metadata := .metadata -}}
{{- range $kind := list "labels" "annotations" -}}
{{- with index $values $kind }}{{ $_ := set $metadata $kind (merge (index $metadata $kind | default dict) (deepCopy .)) }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* countersign.probes changes the times of a container's probes. Call it with the dict container, probes. */}}
{{- define "countersign.probes" -}}
{{- $container := .container -}}
{{- range $kind, $times := .probes -}}
{{- with index $container (printf "%sProbe" $kind) }}{{ $_ := mergeOverwrite . (deepCopy $times) }}{{ end -}}
{{- end -}}
{{- end -}}

{{/*
countersign.test is a pod for `helm test`: the image of a workload validates the configuration with
what the workload mounts. Call it with the dict root, object, as a list of one object or none.
*/}}
{{- define "countersign.test" -}}
{{- $pod := deepCopy .object.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $file := last $container.args -}}
{{- $_ := set $container "args" (list "config" "validate" "--config" $file) -}}
{{- range list "ports" "readinessProbe" "livenessProbe" "startupProbe" }}{{ $_ := unset $container . }}{{ end -}}
{{- $_ := set $pod "restartPolicy" "Never" -}}
{{- $_ := unset $pod "topologySpreadConstraints" -}}
{{- $name := printf "%s-test" .object.metadata.name -}}
{{- $metadata := dict "name" $name "annotations" (dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded") -}}
{{- include "countersign.placed" (dict "root" .root "app" $name "object" (dict "apiVersion" "v1" "kind" "Pod" "metadata" $metadata "spec" $pod)) -}}
{{- end -}}
