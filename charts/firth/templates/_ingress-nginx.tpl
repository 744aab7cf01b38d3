{{/* Refuses values of the ingress-nginx chart, and says what they are here. */}}
{{- define "firth.checkIngressNginx" -}}
{{- $said := list -}}
{{- range $theirs, $ours := .Files.Get "ingress-nginx-values.yaml" | fromYaml -}}
{{- $at := $.Values -}}
{{- range splitList "." $theirs -}}
{{- $at = index (ternary $at dict (kindIs "map" $at)) . -}}
{{- end -}}
{{- if not (kindIs "invalid" $at) -}}
{{- $said = append $said (printf "%s: %s" $theirs $ours) -}}
{{- end -}}
{{- end -}}
{{- range $key, $_ := .Values.controller -}}
{{- $path := printf "controller.%s" $key -}}
{{- if not (regexMatch (printf "(^|\n)%s[.:]" $path) (join "\n" $said)) -}}
{{- $said = append $said (printf "%s: nothing here by that name" $path) -}}
{{- end -}}
{{- end -}}
{{- with $said -}}
{{- fail (printf "these are values of the ingress-nginx chart, and are here (docs/migrating.md):\n  %s" (join "\n  " .)) -}}
{{- end -}}
{{- end -}}
