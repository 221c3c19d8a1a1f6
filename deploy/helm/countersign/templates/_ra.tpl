{{- define "countersign.ra.config" -}}
{{- $base := .Files.Get "files/kustomize/ra/ra.yaml" | fromYaml -}}
{{- $own := merge (dict "cluster" (dict "system_namespace" .Release.Namespace)) (pick $base "lock" "runtime_dir" "status") -}}
{{- merge (deepCopy .Values.ra.config) $own | toYaml -}}
{{- end -}}

{{- define "countersign.ra.check" -}}
{{- $config := .config -}}
{{- if and (not $config.signers) (not (dig "istio" "listen" "" $config)) (not (dig "cert_manager" "authorities" list $config)) -}}
{{- fail "ra.config has nobody to serve: set signers, istio.listen or cert_manager.authorities." -}}
{{- end -}}
{{- if not .part.rightsOnly -}}
{{- include "countersign.check.addresses" (dict "what" "ra" "config" $config) -}}
{{- if not $config.providers }}{{ fail "ra.config.providers is not set: name the CA that signs, such as providers: [{name: vault, settings: {…}}]." }}{{ end -}}
{{- if and (gt (int .part.replicas) 1) (not (dig "leader_election" "enabled" true $config)) -}}
{{- fail (printf "ra.replicas is %d, and ra.config.leader_election.enabled is false: two would sign without a leader; remove one of the two." (int .part.replicas)) -}}
{{- end -}}
{{- if ne $config.cluster.system_namespace .root.Release.Namespace -}}
{{- fail (printf "ra.config.cluster.system_namespace is %s, and the release is in %s: remove it, or install there." $config.cluster.system_namespace .root.Release.Namespace) -}}
{{- end -}}
{{- if not (has (dig "istio" "listen" "" $config | include "countersign.port") (list "" "15012")) -}}
{{- fail "ra.config.istio.listen is another port than 15012, which the chart's Service and NetworkPolicy have: write \":15012\"." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* countersign.ra.files: the files of the bases that the configuration asks for, as a JSON list. */}}
{{- define "countersign.ra.files" -}}
{{- $config := .config -}}
{{- $files := list "ra/rights/account.yaml" "ra/rights/pods.yaml" "ra/rights/guard.yaml" -}}
{{- $facts := include "countersign.ra.signers" $config | fromJson -}}
{{- if $facts.names }}{{ $files = concat $files (list "ra/rights/signer.yaml" "ra/rights/policy.yaml") }}{{ end -}}
{{- if $facts.bundles }}{{ $files = append $files "ra/rights/bundles.yaml" }}{{ end -}}
{{- if $facts.federated }}{{ $files = append $files "ra/federation/federation.yaml" }}{{ end -}}
{{- if $facts.requests }}{{ $files = append $files "ra/requests/requests.yaml" }}{{ end -}}
{{- if $facts.approve }}{{ $files = append $files "ra/approval/approval.yaml" }}{{ end -}}
{{- if dig "istio" "listen" "" $config }}{{ $files = append $files "ra/istio/rights/rights.yaml" }}{{ end -}}
{{- if dig "mesh" "roots" "enabled" false $config }}
{{- $files = append $files (eq (dig "mesh" "roots" "as" "" $config) "cluster_trust_bundle" | ternary "ra/mesh-bundle/bundle.yaml" "ra/mesh/mesh.yaml") }}{{ end -}}
{{- if dig "mesh" "istiod" "enabled" false $config }}{{ $files = append $files "ra/istiod/istiod.yaml" }}{{ end -}}
{{- if not .part.rightsOnly -}}
{{- $files = concat $files (list "ra/home.yaml" "ra/deployment.yaml") -}}
{{- if dig "cert_manager" "authorities" list $config }}{{ $files = concat $files (list "ra/cert-manager/types.yaml" "ra/cert-manager/rights.yaml") }}{{ end -}}
{{- if dig "remotes" "secrets" false $config }}{{ $files = append $files "ra/remotes/remotes.yaml" }}{{ end -}}
{{- if dig "istio" "listen" "" $config }}{{ $files = concat $files (list "ra/replicas/replicas.yaml" "ra/istio/service.yaml") }}{{ end -}}
{{- if dig "publish_bundle" "address" "" $config }}{{ $files = concat $files (list "ra/bundle-endpoint/rights.yaml" "ra/bundle-endpoint/service.yaml") }}{{ end -}}
{{- if gt (int .part.replicas) 1 }}{{ $files = append $files "ra/disruption.yaml" }}{{ end -}}
{{- if .root.Values.networkPolicy.enabled }}{{ $files = append $files "ra/network.yaml" }}{{ end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* countersign.ra.signers: names and trust bundles of the signers, whether these have bundle_endpoints, be the list empty, and whether they take or approve CertificateSigningRequests. */}}
{{- define "countersign.ra.signers" -}}
{{- $facts := dict "names" list "bundles" list "requests" false "approve" false "federated" false -}}
{{- range .signers -}}
{{- $_ := set $facts "names" (append $facts.names .name) -}}
{{- with dig "trust_bundle" "name" "" . }}{{ $_ := set $facts "bundles" (append $facts.bundles .) }}{{ end -}}
{{- if hasKey (.trust_bundle | default dict) "bundle_endpoints" }}{{ $_ := set $facts "federated" true }}{{ end -}}
{{- if dig "certificate_requests" "enabled" false . }}{{ $_ := set $facts "requests" true }}{{ end -}}
{{- if dig "certificate_requests" "approve" false . }}{{ $_ := set $facts "approve" true }}{{ end -}}
{{- end -}}
{{- toJson $facts -}}
{{- end -}}

{{/* countersign.ra.fit puts the signers' names where the base has an example's, and opens the port of a mesh. */}}
{{- define "countersign.ra.fit" -}}
{{- $object := .object -}}
{{- $facts := include "countersign.ra.signers" .config | fromJson -}}
{{- $key := printf "%s %s" $object.kind $object.metadata.name -}}
{{- if eq $key "ClusterRole countersign-ra-signer" -}}
{{- $rule := first $object.rules -}}
{{- $_ := set $rule "resourceNames" $facts.names -}}
{{- if $facts.approve }}{{ $_ := set $rule "verbs" (append $rule.verbs "approve") }}{{ end -}}
{{- else if eq $key "ClusterRole countersign-ra-bundles" -}}
{{- $_ := set (first $object.rules) "resourceNames" $facts.bundles -}}
{{- else if eq $key "ValidatingAdmissionPolicy countersign-ra-federation" -}}
{{- $_ := set (first $object.spec.validations) "expression" (printf "has(oldObject.spec.signerName) && oldObject.spec.signerName in ['%s']" (join "', '" $facts.names)) -}}
{{- else if eq $object.kind "ValidatingAdmissionPolicy" -}}
{{- $_ := set (first $object.spec.matchConditions) "expression" (printf "object.spec.signerName in ['%s']" (join "', '" $facts.names)) -}}
{{- else if eq $object.kind "CustomResourceDefinition" -}}
{{- $_ := set $object.metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") ($object.metadata.annotations | default dict)) -}}
{{- else if eq $object.kind "Deployment" -}}
{{- include "countersign.workload" . -}}
{{- if dig "istio" "listen" "" .config }}{{ include "countersign.ra.mesh" . }}{{ end -}}
{{- else if eq $object.kind "NetworkPolicy" -}}
{{- include "countersign.egress" (dict "object" $object "ports" .part.egressPorts) -}}
{{- if dig "istio" "listen" "" .config -}}
{{- $rule := first $object.spec.ingress -}}
{{- $_ := set $rule "ports" (append $rule.ports (dict "port" "grpc-ca")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "countersign.ra.mesh" -}}
{{- $patch := (.root.Files.Get "files/kustomize/ra/istio/deployment.yaml" | fromYaml).spec.template -}}
{{- $template := .object.spec.template -}}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels $patch.metadata.labels) -}}
{{- $container := first $template.spec.containers -}}
{{- $_ := set $container "ports" (concat $container.ports (first $patch.spec.containers).ports) -}}
{{- end -}}
