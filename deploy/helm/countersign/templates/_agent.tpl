{{/* countersign.agent.check: what holds for the agent of a node and of a sidecar. */}}
{{- define "countersign.agent.check" -}}
{{- $address := "" -}}
{{- range .part.env }}{{ if eq .name "CA_ADDR" }}{{ $address = "set" }}{{ end }}{{ end -}}
{{- if not (or .config.providers (dig "spire" "socket" "" .config) $address) -}}
{{- fail (printf "%s: there is no CA: set %s.config.providers, or CA_ADDR in %s.env." .what .what .what) -}}
{{- end -}}
{{- end -}}

{{- define "countersign.node.config" -}}
{{- $base := .Files.Get "files/kustomize/sidecar/countersign.yaml" | fromYaml -}}
{{- $account := "/var/run/secrets/kubernetes.io/serviceaccount" -}}
{{- $own := pick $base "lock" "runtime_dir" -}}
{{- $_ := set $own "socket" (dict "path" "/run/countersign-agent/socket" "mode" "0666") -}}
{{- $_ := set $own "status" (dict "probes" ":15021" "metrics" ":15020") -}}
{{- if eq (dig "workloads" "verified_by" "" .Values.agent.config) "token_review" -}}
{{- $_ := set $own "workloads" (dict "token_review" (dict "url" "https://kubernetes.default.svc" "token_file" (print $account "/token") "root_file" (print $account "/ca.crt"))) -}}
{{- end -}}
{{- if .Values.agent.config.broker -}}
{{- $_ := set $own "broker" (dict "socket" "/run/countersign-broker/socket") -}}
{{- end -}}
{{- merge (deepCopy .Values.agent.config) $own | toYaml -}}
{{- end -}}

{{/* countersign.node.pods: not empty if brokers may refer to pods. Call it with the configuration. */}}
{{- define "countersign.node.pods" -}}
{{- range (dig "broker" "brokers" list .) }}{{ if has "kubernetes" (.references | default list) }}yes{{ end }}{{ end -}}
{{- end -}}

{{- define "countersign.node.check" -}}
{{- include "countersign.agent.check" . -}}
{{- $workloads := .config.workloads | default dict -}}
{{- if not (or $workloads.verified_by $workloads.peers .config.broker) -}}
{{- fail "agent.config.workloads is not set: an agent of a node gives each workload its own identity; write workloads: {verified_by: token_review}." -}}
{{- end -}}
{{- if dig "publish_bundle" "address" "" .config -}}
{{- fail "agent.config.publish_bundle: the agent of each node would publish with numbers of its own: publish from ra, from discovery, or from an agent of its own." -}}
{{- end -}}
{{- if ne .config.socket.path "/run/countersign-agent/socket" -}}
{{- fail "agent.config.socket.path is not where the chart mounts agent.socketFolder: remove it." -}}
{{- end -}}
{{- $socket := dig "broker" "socket" "" .config -}}
{{- if and $socket (ne $socket "/run/countersign-broker/socket") (not (hasPrefix "tcp://" $socket)) -}}
{{- fail "agent.config.broker.socket is not where the chart mounts agent.brokerFolder: remove it." -}}
{{- end -}}
{{- if and .config.broker (hasPrefix (print (trimSuffix "/" .part.socketFolder) "/") (print .part.brokerFolder "/")) -}}
{{- fail "agent.brokerFolder is in agent.socketFolder, which workloads mount: write another folder of the node." -}}
{{- end -}}
{{- if and .monitored (dig "status" "metrics_secret" "" .config) -}}
{{- fail "monitoring.podMonitor asks for plain HTTP, and agent.config.status.metrics_secret makes it TLS: remove one, and write a PodMonitor with your scraper's TLS settings." -}}
{{- end -}}
{{- end -}}

{{- define "countersign.sidecar.config" -}}
{{- $own := .Files.Get "files/kustomize/sidecar/countersign.yaml" | fromYaml -}}
{{- merge (deepCopy .Values.sidecar.config) (pick $own "lock" "runtime_dir" "socket") | toYaml -}}
{{- end -}}

{{/*
countersign.sidecar: what the pod of a proxy gets, in YAML: initContainers, volumes, the volumeMounts
of the proxy's container, and imagePullSecrets if there are any. Another chart that depends on this one calls it with
.Subcharts.countersign.
*/}}
{{- define "countersign.sidecar" -}}
{{- $part := .Values.sidecar -}}
{{- $config := include "countersign.sidecar.config" . | fromYaml -}}
{{- include "countersign.agent.check" (dict "what" "sidecar" "part" $part "config" $config) -}}
{{- $spec := (.Files.Get "files/kustomize/sidecar/deployment.yaml" | fromYaml).spec.template.spec -}}
{{- $container := first $spec.initContainers -}}
{{- include "countersign.pod" (dict "root" . "part" $part "pod" $spec "container" $container) -}}
{{- $all := dict "initContainers" $spec.initContainers "volumes" $spec.volumes "volumeMounts" (first $spec.containers).volumeMounts -}}
{{- with $spec.imagePullSecrets }}{{ $_ := set $all "imagePullSecrets" . }}{{ end -}}
{{- toYaml $all -}}
{{- end -}}
