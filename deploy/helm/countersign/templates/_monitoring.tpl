{{/* countersign.podmonitor: call it with the dict name, port, labels. */}}
{{- define "countersign.podmonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .name }}
  labels: {{ toJson .labels }}
spec:
  selector:
    matchLabels: {app: {{ .name }}}
  podMetricsEndpoints:
    - port: {{ .port }}
      path: /metrics
      {{- with .interval }}
      interval: {{ . }}
      {{- end }}
      {{- with .scrapeTimeout }}
      scrapeTimeout: {{ . }}
      {{- end }}
{{- end -}}
