{{- define "countersign.discovery.config" -}}
{{- $base := .Files.Get "files/kustomize/discovery/discovery.yaml" | fromYaml -}}
{{- $own := merge (dict "cluster" (dict "system_namespace" .Release.Namespace)) (pick $base "lock" "runtime_dir" "status") -}}
{{- merge (deepCopy .Values.discovery.config) $own | toYaml -}}
{{- end -}}

{{- define "countersign.discovery.check" -}}
{{- $config := .config -}}
{{- if not .part.rightsOnly -}}
{{- include "countersign.check.addresses" (dict "what" "discovery" "config" $config) -}}
{{- if not (or $config.providers (and $config.certificate (dig "chain_file" "" $config.certificate))) -}}
{{- fail "discovery.config.providers is not set: name the CA of the service's own certificate, or the files of certificate.chain_file and certificate.key_file." -}}
{{- end -}}
{{- if not $config.certificate -}}
{{- fail "discovery.config.certificate is not set: name the service, such as certificate: {dns_names: [secret-discovery.istio-system.svc]}." -}}
{{- end -}}
{{- if ne (dig "listen" "tls" ":15012" $config | include "countersign.port") "15012" -}}
{{- fail "discovery.config.listen.tls is another port than 15012, which the chart's Service and NetworkPolicy have: remove it." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the base's probes, ports and volumes have, and the configuration must not change. */}}
{{- define "countersign.check.addresses" -}}
{{- if ne (dig "status" "probes" "" .config | include "countersign.port") "15021" -}}
{{- fail (printf "%s.config.status.probes is another port than 15021, where the pod's probes ask: remove it." .what) -}}
{{- end -}}
{{- end -}}
