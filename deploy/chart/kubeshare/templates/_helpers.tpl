{{/* The image of all programs. */}}
{{- define "kubeshare.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is empty: say where the nodes find the image, as in --set image.repository=registry.example/kubeshare" -}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What the labels of every object have besides part-of and component, as of a map in one line. */}}
{{- define "kubeshare.common" -}}
app.kubernetes.io/name: kubeshare, app.kubernetes.io/instance: {{ quote .Release.Name }}, app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}, app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* All labels of an object of a component, as a map in one line. */}}
{{- define "kubeshare.labels" -}}
{app.kubernetes.io/part-of: kubeshare, app.kubernetes.io/component: {{ .component }}, {{ include "kubeshare.common" .root }}}
{{- end -}}

{{/* The text of a file of manifests, for this release's namespace and image. */}}
{{- define "kubeshare.file" -}}
{{- $image := include "kubeshare.image" .root -}}
{{- $driver := printf "hostPath: {path: %s," (quote .root.Values.driverRoot) -}}
{{- $labels := printf "  labels: {%s, " (include "kubeshare.common" .root) -}}
{{- $text := .text | replace "kubeshare-system" .root.Release.Namespace | replace "kubeshare:dev" $image
  | replace "hostPath: {path: /run/nvidia/driver," $driver -}}
{{- regexReplaceAllLiteral "(?m)^  labels: \\{" $text $labels -}}
{{- end -}}

{{/* A Deployment or DaemonSet with its labels and what the values say of its pods: resources are merged, labels and
tolerations added, options appended to its command, and the rest is set. Its selector stays: Kubernetes allows no
other one. */}}
{{- define "kubeshare.program" -}}
{{- $workload := fromYaml .text -}}
{{- $component := index $workload.metadata.labels "app.kubernetes.io/component" -}}
{{- $settings := index .root.Values ($component | camelcase | untitle) -}}
{{- $labels := include "kubeshare.labels" (dict "root" .root "component" $component) | fromYaml -}}
{{- $_ := set $workload.metadata "labels" $labels -}}
{{- $template := $workload.spec.template -}}
{{- $_ := set $template.metadata "labels" (merge (deepCopy $labels) ($settings.podLabels | default dict)) -}}
{{- with $settings.podAnnotations -}}
{{- $_ := set $template.metadata "annotations" . -}}
{{- end -}}
{{- $options := pick $settings "policy" "escapes" -}}
{{- if eq $component "device-manager" -}}
{{- $options = pick .root.Values.scheduler "policy" -}}
{{- end -}}
{{- /* A release of before has no such value where an upgrade reuses its values. */ -}}
{{- $level := .root.Values.logLevel | default "info" -}}
{{- if ne $level "info" -}}
{{- $options = merge $options (dict "log-level" $level) -}}
{{- end -}}
{{- $pod := $template.spec -}}
{{- range $container := $pod.containers -}}
{{- $_ := mergeOverwrite $container.resources (deepCopy ($settings.resources | default dict)) -}}
{{- range $option, $value := $options -}}
{{- $_ := set $container "command" (concat $container.command (list (printf "--%s" $option) $value)) -}}
{{- end -}}
{{- end -}}
{{- with $settings.tolerations -}}
{{- $_ := set $pod "tolerations" (concat ($pod.tolerations | default list) .) -}}
{{- end -}}
{{- range $key, $value := pick $settings "nodeSelector" "affinity" "priorityClassName" -}}
{{- $_ := set $pod $key $value -}}
{{- end -}}
{{- if .root.Values.imagePullSecrets -}}
{{- $_ := set $pod "imagePullSecrets" (include "kubeshare.pullSecrets" . | fromYamlArray) -}}
{{- end -}}
{{- toYaml $workload -}}
{{- end -}}

{{/* The Secrets for the image, as pods name them. */}}
{{- define "kubeshare.pullSecrets" -}}
{{- range .root.Values.imagePullSecrets }}
- name: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* The ConfigMap with the values' configuration over the defaults. */}}
{{- define "kubeshare.configuration" -}}
{{- if .root.Values.configuration -}}
{{- $map := fromYaml .text -}}
{{- $merged := mergeOverwrite (fromYaml (index $map.data "config.yaml")) (deepCopy .root.Values.configuration) -}}
{{- $_ := set $map.data "config.yaml" (toYaml $merged) -}}
{{- toYaml $map -}}
{{- else -}}
{{- .text -}}
{{- end -}}
{{- end -}}

{{/* Refuses what cannot work, before anything is applied. */}}
{{- define "kubeshare.check" -}}
{{- $namespace := .Release.Namespace -}}
{{- if or (eq $namespace "default") (hasPrefix "kube-" $namespace) -}}
{{- fail (printf "KubeShare has a namespace of its own, and %s cannot be it: helm install %s … --namespace kubeshare-system --create-namespace" $namespace .Release.Name) -}}
{{- end -}}
{{- with lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "kubeshare-scheduler" -}}
{{- $in := (first .subjects).namespace -}}
{{- $name := index (.metadata.annotations | default dict) "meta.helm.sh/release-name" | default $.Release.Name -}}
{{- if or (ne $name $.Release.Name) (ne $in $namespace) -}}
{{- fail (printf "this cluster has KubeShare in namespace %s, and can have it once: upgrade it there (helm upgrade %s … --namespace %s), or uninstall it first" $in $name $in) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The annotations of an object of a hook: the later weights after the earlier ones. Of a hook that failed only
its Job stays, for its log. */}}
{{- define "kubeshare.hooked" -}}
helm.sh/hook: {{ .hook }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded{{ if ne .weight "0" }},hook-failed{{ end }}
{{- end -}}

{{/* A Job that runs `kubeshare` as a hook, and the rights of its account. */}}
{{- define "kubeshare.hook" -}}
{{- $labels := include "kubeshare.labels" (dict "root" .root "component" "hook") -}}
{{- $first := include "kubeshare.hooked" (dict "hook" .hook "weight" "-2") -}}
{{- $second := include "kubeshare.hooked" (dict "hook" .hook "weight" "-1") -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $name := printf "kubeshare-%s" .name -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels: {{ $labels }}
  annotations:
{{ $first | indent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels: {{ $labels }}
  annotations:
{{ $first | indent 4 }}
rules:
{{ include (printf "kubeshare.rules.%s" .name) .root | indent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{ $labels }}
  annotations:
{{ $second | indent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $namespace }}}]
{{- with .inNamespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels: {{ $labels }}
  annotations:
{{ $first | indent 4 }}
rules:
{{ . | indent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels: {{ $labels }}
  annotations:
{{ $second | indent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $namespace }}}]
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels: {{ $labels }}
  annotations:
{{ include "kubeshare.hooked" (dict "hook" .hook "weight" "0") | indent 4 }}
    helm.sh/hook-output-log-policy: hook-failed
spec:
  backoffLimit: 0
  template:
    metadata: {labels: {{ $labels }}}
    spec:
      serviceAccountName: {{ $name }}
      restartPolicy: Never
      priorityClassName: system-cluster-critical
      {{- if .root.Values.imagePullSecrets }}
      imagePullSecrets: {{ include "kubeshare.pullSecrets" . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: kubeshare
          image: {{ include "kubeshare.image" .root }}
          imagePullPolicy: IfNotPresent
          command: {{ concat (list "python3" "-m" "kubeshare") .command | toJson }}
          env:
            - {name: KUBESHARE_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
          resources: {requests: {cpu: 20m, memory: 64Mi}, limits: {memory: 512Mi}}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
{{- end -}}
