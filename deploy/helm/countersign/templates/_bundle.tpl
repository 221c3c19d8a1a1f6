{{/*
countersign.bundle opens the port of publish_bundle: of the pods, in the NetworkPolicy, and in the
Service. Call it with the dict object, config. It prints nothing.
*/}}
{{- define "countersign.bundle" -}}
{{- $object := .object -}}
{{- with dig "publish_bundle" "address" "" .config | include "countersign.port" -}}
{{- if eq $object.kind "Deployment" -}}
{{- $container := first $object.spec.template.spec.containers -}}
{{- $_ := set $container "ports" (append $container.ports (dict "name" "https-bundle" "containerPort" (int .))) -}}
{{- else if eq $object.kind "NetworkPolicy" -}}
{{- $rule := first $object.spec.ingress -}}
{{- $_ := set $rule "ports" (append $rule.ports (dict "port" "https-bundle")) -}}
{{- else if eq (include "countersign.bundle.service" $object) "yes" -}}
{{- $_ := set (first $object.spec.ports) "port" (int .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* countersign.bundle.service: not empty for the Service of a bundle endpoint. */}}
{{- define "countersign.bundle.service" -}}
{{- if and (eq .kind "Service") (hasSuffix "-bundle" .metadata.name) }}yes{{ end -}}
{{- end -}}
