{{/* Pieces that the components share.  A component is a dict:
     root (the chart's top), name (after the release's), prefix (of its values), app (its label), command (of `hekla`), args, and
     optionally env, ports, mounts, volumes, liveness, replicas, electing. */}}

{{/* A value of the component's own, else that of all. */}}
{{- define "hekla.own" -}}
{{- $custom := .component.root.Values.custom -}}
{{- $own := get $custom (printf "%s_%s" .component.prefix .of) -}}
{{- if $own }}{{ toYaml $own }}{{ else if .all }}{{ with get $custom .all }}{{ toYaml . }}{{ end }}{{ end -}}
{{- end }}

{{- define "hekla.image" -}}
{{- $basic := .root.Values.basic -}}
{{- $tag := get $basic (printf "%s_image_tag_version" .prefix) | default $basic.image_tag_version | default .root.Chart.AppVersion -}}
{{- $digest := get $basic (printf "%s_image_digest" .prefix) | default $basic.image_digest -}}
{{- with $basic.image_registry }}{{ . }}/{{ end }}{{ get $basic (printf "%s_image_name" .prefix) }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "hekla.labels" -}}
app: {{ .app }}
{{- with .root.Values.custom.common_labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* --name=value for every value that is said. */}}
{{- define "hekla.flags" -}}
{{- $custom := .root.Values.custom -}}
{{- range $flag, $key := .flags }}
{{- $value := get $custom $key }}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
- {{ printf "--%s=%v" $flag (kindIs "float64" $value | ternary (toString $value) $value) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "hekla.election" -}}
{{- if .electing }}
- "--leader-elect=true"
- "--leader-elect-resource-namespace={{ .root.Release.Namespace }}"
{{- with .lease }}
- "--leader-elect-resource-name={{ . }}"
{{- end }}
{{- else }}
- "--leader-elect=false"
{{- end }}
{{- end }}

{{- define "hekla.deployment" -}}
{{- $custom := .root.Values.custom -}}
{{- $metrics := hasKey . "metrics" | ternary .metrics 0 -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hekla.labels" . | nindent 4 }}
    {{- with include "hekla.own" (dict "component" . "of" "labels" "all" "") }}
    {{- . | nindent 4 }}
    {{- end }}
spec:
  replicas: {{ .replicas }}
  selector:
    matchLabels:
      app: {{ .app }}
  {{- if not .shared }}
  strategy: {type: Recreate, rollingUpdate: null} # nobody elects, so the old copy has to be gone before the new one works
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "hekla.labels" . | nindent 8 }}
        {{- with include "hekla.own" (dict "component" . "of" "podLabels" "all" "") }}
        {{- . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ .root.Release.Name }}-{{ .name }}
      priorityClassName: system-cluster-critical
      {{- with .root.Values.basic.image_pull_secret }}
      imagePullSecrets: [{name: {{ . }}}]
      {{- end }}
      {{- with include "hekla.own" (dict "component" . "of" "sc" "all" "default_sc") }}
      securityContext:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with include "hekla.own" (dict "component" . "of" "affinity" "all" "default_affinity") }}
      affinity:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with include "hekla.own" (dict "component" . "of" "tolerations" "all" "default_tolerations") }}
      tolerations:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with include "hekla.own" (dict "component" . "of" "ns" "all" "default_ns") }}
      nodeSelector:
        {{- . | nindent 8 }}
      {{- end }}
      containers:
      - name: {{ .root.Release.Name }}-{{ .name }}
        image: {{ include "hekla.image" . | quote }}
        imagePullPolicy: {{ .root.Values.basic.image_pull_policy }}
        command: [hekla, {{ .command }}]
        args:
        {{- .args | nindent 8 }}
        - "--enable-healthz=true"
        {{- if $metrics }}
        - "--enable-metrics=true"
        {{- end }}
        - "-v={{ int .level }}"
        env:
        - name: KUBE_POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        - name: HELM_RELEASE_NAME
          value: {{ .root.Release.Name | quote }}
        - {name: HOME, value: /nonexistent} # a kubeconfig in somebody's home is not what a pod comes with
        ports:
        - {name: health, containerPort: 11251}
        {{- if $metrics }}
        - {name: metrics, containerPort: {{ $metrics }}}
        {{- end }}
        {{- with .ports }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        readinessProbe:
          httpGet: {path: /readyz, port: 11251}
          periodSeconds: 5
        {{- if .liveness }}
        livenessProbe:
          httpGet: {path: /healthz, port: 11251}
          initialDelaySeconds: 5
          periodSeconds: 10
        {{- end }}
        {{- with include "hekla.own" (dict "component" . "of" "main_csc" "all" "default_csc") }}
        securityContext:
          {{- . | nindent 10 }}
        {{- end }}
        {{- with include "hekla.own" (dict "component" . "of" "resources" "all" "") }}
        resources:
          {{- . | nindent 10 }}
        {{- end }}
        volumeMounts:
        - {name: temporary, mountPath: /tmp} # the one place that is written to
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
      - {name: temporary, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
      {{- with .volumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- if $custom.network_policies_enable }}
---
{{ include "hekla.networkpolicy" . }}
{{- end }}
{{- end }}

{{/* Only the ports that are served are reached.  Where the API server and the kubelets ask from is no pod's address, so that webhooks and
     health are open to all; metrics may be for some. */}}
{{- define "hekla.networkpolicy" -}}
{{- $custom := .root.Values.custom -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hekla.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      app: {{ .app }}
  policyTypes: [Ingress{{ if $custom.network_policy_egress }}, Egress{{ end }}]
  ingress:
  - ports:
    - {port: 11251, protocol: TCP}
    {{- range .ports }}
    - {port: {{ .containerPort }}, protocol: TCP}
    {{- end }}
  {{- if hasKey . "metrics" }}
  - ports:
    - {port: {{ .metrics }}, protocol: TCP}
    {{- with $custom.network_policy_metrics_from }}
    from:
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- with $custom.network_policy_egress }}
  egress:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The Service that metrics are read from. */}}
{{- define "hekla.metrics" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}-service
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hekla.labels" . | nindent 4 }}
  annotations:
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ .metrics | quote }}
    prometheus.io/path: /metrics
spec:
  {{- include "hekla.families" .root | nindent 2 }}
  selector:
    app: {{ .app }}
  ports:
  - {name: metrics, port: {{ .metrics }}, targetPort: {{ .metrics }}, protocol: TCP}
{{- end }}

{{- define "hekla.families" -}}
type: ClusterIP
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- end }}

{{/* A configuration as a ConfigMap; `bare`: it is called as its component is. */}}
{{- define "hekla.config" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}{{ if not .bare }}-configmap{{ end }}
  namespace: {{ .root.Release.Namespace }}
  {{- with .root.Values.custom.common_labels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  {{ .key }}: |
    {{- .text | trimSuffix "\n" | nindent 4 }}
{{- end }}

{{/* An account with rights: `everywhere` and `at_home` (in the release's namespace), lists of rules. */}}
{{- define "hekla.account" -}}
{{- $name := printf "%s-%s" .root.Release.Name .name -}}
{{- $binding := .binding | default (printf "%s-role" $name) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
rules:
{{ toYaml .everywhere }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $binding }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ .root.Release.Namespace }}}
{{- $rules := .for_secrets }}
{{- range .secret_namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}-secrets
  namespace: {{ . }}
rules:
{{ toYaml $rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}-secrets
  namespace: {{ . }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}-secrets}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- with .at_home }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $.root.Release.Namespace }}
rules:
{{ toYaml . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $binding }}
  namespace: {{ $.root.Release.Namespace }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end }}

{{/* The text of a configuration: what the values say, else the chart's file. */}}
{{- define "hekla.text" -}}
{{- $file := .root.Files.Get .file -}}
{{- if .override }}{{ .override }}{{ else if $file }}{{ $file }}{{ else }}{{ fail (printf "%s: there is no such file in the chart" .file) }}{{ end -}}
{{- end }}
