{{/*
countersign.pod changes a pod's spec and its first container by the values of a part. Call it with
the dict root, part, pod, container, config (a volume's ConfigMap). It prints nothing.
*/}}
{{- define "countersign.pod" -}}
{{- $container := .container -}}
{{- $_ := set $container "image" (include "countersign.image" (dict "root" .root "name" .part.image)) -}}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy -}}
{{- with .part.resources }}{{ $_ := set $container "resources" . }}{{ end -}}
{{- include "countersign.probes" (dict "container" $container "probes" .part.probes) -}}
{{- range .root.Values.image.pullSecrets }}{{ $_ := set $.pod "imagePullSecrets" (append ($.pod.imagePullSecrets | default list) (dict "name" .)) }}{{ end -}}
{{- with .part.env }}{{ $_ := set $container "env" (concat ($container.env | default list) .) }}{{ end -}}
{{- include "countersign.volumes" . -}}
{{- $_ := set $container "volumeMounts" (concat $container.volumeMounts .part.volumeMounts) -}}
{{- $_ := set .pod "volumes" (concat .pod.volumes .part.volumes) -}}
{{- $_ := mergeOverwrite .pod (deepCopy (.part.pod | default dict)) -}}
{{- end -}}

{{/* The bases mount what istiod or Vault takes: tokens, and a root. Here the values say what there is. */}}
{{- define "countersign.volumes" -}}
{{- $volumes := list -}}
{{- $mounts := .container.volumeMounts -}}
{{- $gone := list -}}
{{- range .pod.volumes -}}
{{- $kind := regexReplaceAll "^countersign-" .name "" -}}
{{- $empty := or (and (eq $kind "tokens" "token") (not $.part.tokens)) (and (eq $kind "istio-root" "root") (not $.part.rootConfigMap)) -}}
{{- if $empty }}{{ $gone = append $gone .name }}{{ else -}}
{{- if eq $kind "tokens" "token" }}{{ $_ := set .projected "sources" list }}{{ $volume := . -}}
{{- range $.part.tokens }}{{ $_ := set $volume.projected "sources" (append $volume.projected.sources (dict "serviceAccountToken" .)) }}{{ end -}}
{{- else if eq $kind "istio-root" "root" }}{{ $_ := set .configMap "name" $.part.rootConfigMap }}{{ end -}}
{{- $volumes = append $volumes . -}}
{{- end -}}
{{- end -}}
{{- $_ := set .pod "volumes" $volumes -}}
{{- $left := list -}}
{{- range $mounts }}{{ if not (has .name $gone) }}{{ $left = append $left . }}{{ end }}{{ end -}}
{{- $_ := set .container "volumeMounts" $left -}}
{{- end -}}

{{/*
countersign.workload changes a Deployment of the bases by the values of a part. A changed
configuration starts new pods, as the programs do not follow all of it. Call it with the dict root,
part, object, config. It prints nothing.
*/}}
{{- define "countersign.workload" -}}
{{- $template := .object.spec.template -}}
{{- $_ := set .object.spec "replicas" (int .part.replicas) -}}
{{- $_ := set $template.metadata "annotations" (dict "checksum/config" (list .config .part.files | toJson | sha256sum)) -}}
{{- include "countersign.pod" (dict "root" .root "part" .part "pod" $template.spec "container" (first $template.spec.containers)) -}}
{{- end -}}

{{/* countersign.egress adds ports to the last rule of a NetworkPolicy, that of API servers and CAs. */}}
{{- define "countersign.egress" -}}
{{- $rule := last .object.spec.egress -}}
{{- range .ports }}{{ $_ := set $rule "ports" (append $rule.ports (dict "port" (int .))) }}{{ end -}}
{{- end -}}
