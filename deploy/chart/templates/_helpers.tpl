{{- define "rejoinder.selector" -}}
app.kubernetes.io/name: rejoinder
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rejoinder.metadata" -}}
name: {{ .Release.Name }}
labels:
  {{- include "rejoinder.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "rejoinder.rights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
