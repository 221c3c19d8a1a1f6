{{/* countersign.node: the agent of a node. Call it with the dict root, part, config. */}}
{{- define "countersign.node" -}}
{{- $reviews := eq (dig "workloads" "verified_by" "" .config) "token_review" -}}
{{- $pods := include "countersign.node.pods" .config -}}
{{- $probes := dig "status" "probes" "" .config | include "countersign.port" -}}
{{- $metrics := dig "status" "metrics" "" .config | include "countersign.port" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: countersign-node
automountServiceAccountToken: false
---
{{- if or $reviews $pods }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: countersign-node
rules:
  {{- if $reviews }}
  - apiGroups: [authentication.k8s.io]
    resources: [tokenreviews]
    verbs: [create]
  {{- end }}
  {{- if $pods }}
  # To resolve the references of brokers. RBAC cannot limit this to the pods of a node; the agent does.
  - apiGroups: [""]
    resources: [pods]
    verbs: [get, list, watch]
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: countersign-node
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: countersign-node
subjects:
  - kind: ServiceAccount
    name: countersign-node
---
{{- end }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: countersign-node
spec:
  selector:
    matchLabels: {app: countersign-node}
  # Streams are resumed by the next agent; proxies keep what they hold.
  updateStrategy:
    rollingUpdate: {maxUnavailable: 1}
  template:
    metadata:
      labels:
        app: countersign-node
        app.kubernetes.io/name: countersign-node
      annotations:
        checksum/config: {{ list .config .part.files | toJson | sha256sum }}
    spec:
      serviceAccountName: countersign-node
      automountServiceAccountToken: {{ or $reviews (ne $pods "") }}
      # Root owns the node's folder. It has no capabilities.
      securityContext:
        runAsUser: 0
        runAsGroup: 0
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: countersign
          command: [/usr/bin/countersign]
          args: [agent, --config, /etc/countersign/countersign.yaml]
          workingDir: /
          {{- if and $pods (not (dig "broker" "node" "" .config)) }}
          env:
            - name: COUNTERSIGN_BROKER_NODE
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
          {{- end }}
          {{- if or $probes $metrics }}
          ports:
            {{- if $probes }}
            - {name: http-probes, containerPort: {{ $probes }}}
            {{- end }}
            {{- if $metrics }}
            - {name: http-metrics, containerPort: {{ $metrics }}}
            {{- end }}
          {{- end }}
          {{- if $probes }}
          readinessProbe:
            httpGet: {path: /readyz, port: http-probes}
            periodSeconds: 2
            timeoutSeconds: 2
          livenessProbe:
            httpGet: {path: /healthz, port: http-probes}
            initialDelaySeconds: 10
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: config, mountPath: /etc/countersign, readOnly: true}
            - {name: run, mountPath: /run/countersign}
            - {name: socket, mountPath: /run/countersign-agent}
            {{- if .config.broker }}
            - {name: broker, mountPath: /run/countersign-broker}
            {{- end }}
            - {name: tokens, mountPath: /var/run/secrets/tokens, readOnly: true}
            - {name: istio-root, mountPath: /var/run/secrets/istio, readOnly: true}
      volumes:
        - name: config
          configMap: {name: countersign-node}
        - name: run
          emptyDir: {medium: Memory, sizeLimit: 16Mi}
        - name: socket
          hostPath: {path: {{ .part.socketFolder | quote }}, type: DirectoryOrCreate}
        {{- if .config.broker }}
        - name: broker
          hostPath: {path: {{ .part.brokerFolder | quote }}, type: DirectoryOrCreate}
        {{- end }}
        - name: tokens
          projected: {sources: []}
        - name: istio-root
          configMap: {}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: countersign-node
spec:
  podSelector:
    matchLabels: {app: countersign-node}
  policyTypes: [Ingress, Egress]
  {{- if or $probes $metrics }}
  ingress:
    - ports:
        {{- if $probes }}
        - {port: http-probes}
        {{- end }}
        {{- if $metrics }}
        - {port: http-metrics}
        {{- end }}
  {{- end }}
  egress:
    - ports:
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
    - ports:
        - {port: 443}
        - {port: 6443}
        - {port: 15012}
{{- end }}
{{- end -}}
