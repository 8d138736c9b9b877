{{- define "pinocchio.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "pinocchio.fullname" -}}
{{- $name := include "pinocchio.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "pinocchio.selector" -}}
app.kubernetes.io/name: {{ include "pinocchio.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pinocchio.labels" -}}
{{ include "pinocchio.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "pinocchio.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{- define "pinocchio.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pinocchio.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "pinocchio.secret" -}}
{{- required "existingSecret is needed: the name of a Secret with PINOCCHIO_ADMIN_TOKEN and PINOCCHIO_STORE (kubectl create secret generic pinocchio --from-literal=PINOCCHIO_ADMIN_TOKEN=.. --from-literal=PINOCCHIO_STORE=..; values.yaml has the others)" .Values.existingSecret -}}
{{- end }}

{{/* What the Secret must have: a pod without it does not start, and Kubernetes says which key is missing. */}}
{{- define "pinocchio.env" -}}
- name: PINOCCHIO_ADMIN_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "pinocchio.secret" . }}, key: PINOCCHIO_ADMIN_TOKEN}}
{{- if not .Values.persistence.enabled }}
- name: PINOCCHIO_STORE
  valueFrom: {secretKeyRef: {name: {{ include "pinocchio.secret" . }}, key: PINOCCHIO_STORE}}
{{- end }}
{{- end }}

{{/* What cannot work together. */}}
{{- define "pinocchio.check" -}}
{{- if and .Values.persistence.enabled (or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1)) -}}
{{- fail "persistence.enabled keeps the store in one file, for one proxy: set replicaCount to 1 and autoscaling.enabled to false, or keep the store in PostgreSQL" -}}
{{- end -}}
{{- if and (not .Values.persistence.enabled) (not (contains "PINOCCHIO_STORE" .Values.config.store)) -}}
{{- fail "config.store has to be ${PINOCCHIO_STORE}: the Secret has the URL with its password, and the migrations job uses it too" -}}
{{- end -}}
{{- end }}
