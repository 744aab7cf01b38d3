{{/* On which nodes the pods of a plane are: the root, the plane's component, its values, and how far its pods are kept
apart: soft, hard, or empty for not at all. */}}
{{- define "firth.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $plane := index . 2 -}}
{{- $apart := index . 3 -}}
{{- $labels := printf "%s\napp.kubernetes.io/component: %s" (include "firth.selector" $root) $component | fromYaml -}}
{{- $pod := dict -}}
{{- if $plane.affinity -}}
{{- $_ := set $pod "affinity" $plane.affinity -}}
{{- else if $apart -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
{{- $rule := dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) -}}
{{- if eq $apart "hard" -}}
{{- $rule = dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) -}}
{{- end -}}
{{- $_ := set $pod "affinity" (dict "podAntiAffinity" $rule) -}}
{{- end -}}
{{- with $plane.topologySpreadConstraints -}}
{{- $constraints := list -}}
{{- range . -}}
{{- $constraints = append $constraints (merge (dict) . (dict "labelSelector" (ternary dict (dict "matchLabels" $labels) (hasKey . "labelSelector")))) -}}
{{- end -}}
{{- $_ := set $pod "topologySpreadConstraints" $constraints -}}
{{- end -}}
{{- range $field := list "priorityClassName" "nodeSelector" "tolerations" -}}
{{- with index $plane $field -}}
{{- $_ := set $pod $field . -}}
{{- end -}}
{{- end -}}
{{- with $pod -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}
