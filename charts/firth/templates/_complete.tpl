{{/* The values without which something would be missing, or be rendered without a value. `helm upgrade --reuse-values` takes the defaults of
the chart that is installed, and so lacks what a newer one has. A new value should rather have a default where it is used. */}}
{{- define "firth.checkComplete" -}}
{{- $paths := list
  "image.repository" "image.pullPolicy" "ingressClass.create" "ingressClass.name" "ingressClass.controller"
  "configMaps.settings" "configMaps.tcpServices" "configMaps.udpServices" "status.enabled" "log.filter" "log.format"
  "controlPlane.replicas" "controlPlane.bind" "controlPlane.service.port" "controlPlane.service.headless" "controlPlane.adminPort"
  "controlPlane.podDisruptionBudget.enabled" "controlPlane.podDisruptionBudget.maxUnavailable" "controlPlane.antiAffinity"
  "webhook.port" "webhook.failurePolicy" "webhook.timeoutSeconds" "webhook.certificate"
  "dataPlane.bind" "dataPlane.ports.http" "dataPlane.ports.https" "dataPlane.ports.health" "dataPlane.accessLog"
  "dataPlane.drain.graceSeconds" "dataPlane.drain.deadlineSeconds" "dataPlane.hostNetworkHealthBind"
  "dataPlane.stateSize" "dataPlane.keySize" "dataPlane.spillSize"
  "service.enabled" "service.type" "service.externalTrafficPolicy" "service.ipFamilyPolicy" "networkPolicy.enabled" "serviceAccount"
-}}
{{- range $path := $paths -}}
{{- $at := $.Values -}}
{{- range splitList "." $path -}}
{{- $at = index (ternary $at dict (kindIs "map" $at)) . -}}
{{- end -}}
{{- if kindIs "invalid" $at -}}
{{- fail (printf "%s: no value, although the chart has a default. An upgrade with --reuse-values keeps the defaults of the older chart: use --reset-then-reuse-values" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
