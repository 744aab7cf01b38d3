{{/* Refuses values of the ingress-nginx chart, and says what they are here. */}}
{{- define "firth.checkIngressNginx" -}}
{{- $said := list -}}
{{- $table := .Files.Get "ingress-nginx-values.yaml" | fromYaml -}}
{{- range $theirs, $ours := $table -}}
{{- $at := $.Values -}}
{{- range splitList "." $theirs -}}
{{- $at = index (ternary $at dict (kindIs "map" $at)) . -}}
{{- end -}}
{{- /* In a chart of charts the global values are for all of them. */ -}}
{{- if not (or (kindIs "invalid" $at) (and (hasPrefix "global." $theirs) (not $.Chart.IsRoot))) -}}
{{- $said = append $said (printf "%s: %s" $theirs $ours) -}}
{{- end -}}
{{- end -}}
{{- range $path := include "firth.unlisted" (list $table "controller" .Values.controller) | fromJsonArray -}}
{{- $said = append $said (printf "%s: nothing here by that name" $path) -}}
{{- end -}}
{{- with $said -}}
{{- fail (printf "these are values of the ingress-nginx chart, and are here (docs/migrating.md):\n  %s" (join "\n  " .)) -}}
{{- end -}}
{{- end -}}

{{/* A JSON list of the paths below one that the table says nothing of: not of them, nor of what they are in. Who is told of some of a
map's values translates those, and would lose the others without a word. */}}
{{- define "firth.unlisted" -}}
{{- $table := index . 0 -}}
{{- $path := index . 1 -}}
{{- $value := index . 2 -}}
{{- $unlisted := list -}}
{{- if not (or (hasKey $table $path) (kindIs "invalid" $value)) -}}
{{- $isParent := false -}}
{{- range $theirs, $_ := $table -}}
{{- $isParent = or $isParent (hasPrefix (printf "%s." $path) $theirs) -}}
{{- end -}}
{{- if and $isParent (kindIs "map" $value) -}}
{{- range $key, $below := $value -}}
{{- $unlisted = concat $unlisted (include "firth.unlisted" (list $table (printf "%s.%s" $path $key) $below) | fromJsonArray) -}}
{{- end -}}
{{- else -}}
{{- $unlisted = list $path -}}
{{- end -}}
{{- end -}}
{{- toJson $unlisted -}}
{{- end -}}
