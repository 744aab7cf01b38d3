{{/* Prefix of all names. A release may have dots, a Service may not. */}}
{{- define "firth.name" -}}
{{- default .Release.Name .Values.fullnameOverride | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "firth.selector" -}}
app.kubernetes.io/name: {{ default "firth" .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "firth.labels" -}}
{{ include "firth.labelsWith" (list . dict) }}
{{- end -}}

{{/* The labels of an object that has some of its own, which win over the common ones. */}}
{{- define "firth.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $own := index . 1 -}}
{{- with $root -}}
{{ include "firth.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}
{{- with merge (dict) (default dict $own) (default dict $root.Values.commonLabels) }}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- define "firth.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "firth.serviceAccount" -}}
{{- default (printf "%s-control-plane" (include "firth.name" .)) .Values.serviceAccount.name -}}
{{- end -}}

{{/* What cannot be expressed by the schema: said before anything is installed. */}}
{{- define "firth.check" -}}
{{- include "firth.checkIngressNginx" . -}}
{{- include "firth.checkComplete" . -}}
{{- if and .Values.networkPolicy.enabled (eq (include "firth.expose" .) "hostNetwork") (not .Values.networkPolicy.nodeCidrs) -}}
{{- fail "networkPolicy.nodeCidrs: with dataPlane.expose=hostNetwork the proxies have the nodes' addresses; name them, or set networkPolicy.enabled=false" -}}
{{- end -}}
{{- with .Values.watchNamespace -}}
{{- if $.Values.watchNamespaceSelector -}}
{{- fail "watchNamespaceSelector: expected none beside watchNamespace: the one names a namespace, the other its labels" -}}
{{- end -}}
{{- if and $.Values.defaultBackendService (ne (first (splitList "/" $.Values.defaultBackendService)) .) -}}
{{- fail (printf "defaultBackendService: expected a Service of namespace %s, which alone is watched (watchNamespace), got %s" . $.Values.defaultBackendService) -}}
{{- end -}}
{{- end -}}
{{- if and (.Values.podMonitor).enabled (eq (include "firth.expose" .) "hostNetwork") (has .Values.dataPlane.hostNetworkHealthBind (list "127.0.0.1" "[::1]")) -}}
{{- fail "podMonitor.enabled: Prometheus cannot reach the proxies' metrics on the nodes' loopback, expected another dataPlane.hostNetworkHealthBind" -}}
{{- end -}}
{{- if and (eq (include "firth.kind" .) "Deployment") (eq (toString (.Values.dataPlane.updateStrategy).type) "OnDelete") -}}
{{- fail "dataPlane.updateStrategy: a Deployment has no OnDelete, expected RollingUpdate or Recreate, or dataPlane.kind=DaemonSet" -}}
{{- end -}}
{{- range $suffix := list "data-plane" "reader" "operator" -}}
{{- if eq (include "firth.serviceAccount" $) (printf "%s-%s" (include "firth.name" $) $suffix) -}}
{{- fail (printf "serviceAccount.name: %s is the account of others, who would get the control plane's rights; expected another one" $.Values.serviceAccount.name) -}}
{{- end -}}
{{- end -}}
{{- if not (regexMatch "^[^:@]+(:[0-9]+/[^:@]+)?$" .Values.image.repository) -}}
{{- fail (printf "image.repository: expected no tag and no digest, which are image.tag and image.digest, got %q" .Values.image.repository) -}}
{{- end -}}
{{- if and .Values.ingressClass.create (not (regexMatch "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$" .Values.ingressClass.name)) -}}
{{- fail (printf "ingressClass.name: expected the name of an IngressClass (a-z, 0-9, - and .), got %q; with ingressClass.create=false any name can be served by its annotation" .Values.ingressClass.name) -}}
{{- end -}}
{{- if and .Values.ingressClass.default (not .Values.ingressClass.create) -}}
{{- fail "ingressClass.default: marks the IngressClass that the chart creates, expected ingressClass.create=true; mark one that exists with the annotation ingressclass.kubernetes.io/is-default-class=true" -}}
{{- end -}}
{{- if and .Values.webhook.certificate.caBundle (not .Values.webhook.certificate.secret) -}}
{{- fail "webhook.certificate.caBundle: has no effect without webhook.certificate.secret, whose CA it is" -}}
{{- end -}}
{{- include "firth.checkPorts" . -}}
{{- include "firth.checkService" . -}}
{{- end -}}

{{/* What would have no effect, or be refused by the API server when half of the release is there. */}}
{{- define "firth.checkService" -}}
{{- $type := .Values.service.type -}}
{{- if or (not .Values.service.enabled) (ne $type "LoadBalancer") -}}
{{- range $key := list "loadBalancerSourceRanges" "loadBalancerIP" -}}
{{- if index $.Values.service $key -}}
{{- fail (printf "service.%s: restricts or names a load balancer, expected service.type=LoadBalancer and service.enabled=true" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.service.nodePorts -}}
{{- $taken := dict "tcp" dict "udp" dict -}}
{{- range $name := list "http" "https" -}}
{{- with index $.Values.service.nodePorts $name -}}
{{- include "firth.take" (list $taken.tcp (printf "service.nodePorts.%s" $name) .) -}}
{{- end -}}
{{- end -}}
{{- range $transport := list "tcp" "udp" -}}
{{- range $port, $node := index $.Values.service.nodePorts $transport -}}
{{- if $node -}}
{{- include "firth.take" (list (index $taken $transport) (printf "service.nodePorts.%s.%s" $transport $port) $node) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $type "ClusterIP") (or .http .https .tcp .udp) -}}
{{- fail "service.nodePorts: expected service.type=NodePort or LoadBalancer: one of type ClusterIP has no ports of the nodes" -}}
{{- end -}}
{{- range $transport := list "tcp" "udp" -}}
{{- range $port, $_ := index $.Values.service.nodePorts $transport -}}
{{- if not (hasKey (index $.Values $transport) $port) -}}
{{- fail (printf "service.nodePorts.%s.%s: expected a port of %s, which has none of this number" $transport $port $transport) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A port has one user: a second one would be refused by the API server, or would not get the port and keep its pod from starting. */}}
{{- define "firth.checkPorts" -}}
{{- $proxy := dict -}}
{{- range $name := list "http" "https" "health" -}}
{{- include "firth.take" (list $proxy (printf "dataPlane.ports.%s" $name) (index $.Values.dataPlane.ports $name)) -}}
{{- end -}}
{{- $service := dict -}}
{{- if .Values.service.enabled -}}
{{- $service = dict "80" "the Service for HTTP" "443" "the Service for HTTPS" -}}
{{- end -}}
{{- range $port, $_ := .Values.tcp -}}
{{- include "firth.take" (list $proxy (printf "tcp.%s" $port) $port) -}}
{{- include "firth.take" (list $service (printf "tcp.%s" $port) $port) -}}
{{- end -}}
{{- $control := dict -}}
{{- include "firth.take" (list $control "controlPlane.service.port" .Values.controlPlane.service.port) -}}
{{- include "firth.take" (list $control "controlPlane.adminPort" .Values.controlPlane.adminPort) -}}
{{- if .Values.webhook.enabled -}}
{{- include "firth.take" (list $control "webhook.port" .Values.webhook.port) -}}
{{- end -}}
{{- end -}}

{{/* Enters the user of a port in a table of them. */}}
{{- define "firth.take" -}}
{{- $taken := index . 0 -}}
{{- $who := index . 1 -}}
{{- $port := index . 2 | toString -}}
{{- with get $taken $port -}}
{{- fail (printf "%s: port %s is already used by %s" $who $port .) -}}
{{- end -}}
{{- $_ := set $taken $port $who -}}
{{- end -}}

{{/* Service NAMESPACE/NAME whose addresses Ingresses have; empty: none. */}}
{{- define "firth.published" -}}
{{- if and .Values.status.enabled (not .Values.status.addresses) -}}
{{- if .Values.status.publishService -}}
{{- .Values.status.publishService -}}
{{- else if .Values.service.enabled -}}
{{- printf "%s/%s" .Release.Namespace (include "firth.name" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* ConfigMap NAMESPACE/NAME with the services over a transport: ours where the values have any. */}}
{{- define "firth.services" -}}
{{- $root := index . 0 -}}
{{- $transport := index . 1 -}}
{{- if index $root.Values $transport -}}
{{- printf "%s/%s-%s" $root.Release.Namespace (include "firth.name" $root) $transport -}}
{{- else -}}
{{- index $root.Values.configMaps (printf "%sServices" $transport) -}}
{{- end -}}
{{- end -}}

{{/* ConfigMap NAMESPACE/NAME with the settings: ours where the values have any. */}}
{{- define "firth.settings" -}}
{{- if .Values.settings -}}
{{- printf "%s/%s-settings" .Release.Namespace (include "firth.name" .) -}}
{{- else -}}
{{- .Values.configMaps.settings -}}
{{- end -}}
{{- end -}}

{{- define "firth.kind" -}}
{{- default "DaemonSet" .Values.dataPlane.kind -}}
{{- end -}}

{{/* How proxies are reached: several of a Deployment may share a node, so they do not take its ports by themselves. */}}
{{- define "firth.expose" -}}
{{- default (ternary "none" "hostPort" (eq (include "firth.kind" .) "Deployment")) .Values.dataPlane.expose -}}
{{- end -}}
