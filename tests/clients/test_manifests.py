"""What `helm template` prints, applied with kubectl: many documents, every kind at once, comments
and empty ones between."""

from __future__ import annotations

from tests.cluster.api import Api
from tests.cluster.conftest import Kubectl, Namespace

CHART = """---
# Source: shop/templates/serviceaccount.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: shop
  labels: {helm.sh/chart: shop-0.1.0, app.kubernetes.io/name: shop, app.kubernetes.io/managed-by: Helm}
automountServiceAccountToken: true
---
# Source: shop/templates/empty.yaml
---
# Source: shop/templates/configmap.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: shop-config}
data:
  config.yaml: |
    listen: ":8080"
    # a comment within
---
apiVersion: v1
kind: Secret
metadata: {name: shop-secret}
type: Opaque
stringData: {password: "hunter2"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shop}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: shop}
subjects:
- {kind: ServiceAccount, name: shop, namespace: NAMESPACE}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  type: ClusterIP
  ports: [{port: 80, targetPort: http, protocol: TCP, name: http}]
  selector: {app.kubernetes.io/name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 0
  selector: {matchLabels: {app.kubernetes.io/name: shop}}
  template:
    metadata: {labels: {app.kubernetes.io/name: shop}}
    spec:
      serviceAccountName: shop
      securityContext: {}
      containers:
      - name: shop
        image: "nginx:1.25"
        imagePullPolicy: IfNotPresent
        ports: [{name: http, containerPort: 80, protocol: TCP}]
        resources: {requests: {cpu: 10m}}
        env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: shop-secret, key: password}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop}
spec: {minAvailable: 1, selector: {matchLabels: {app.kubernetes.io/name: shop}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  rules:
  - host: shop.local
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  minReplicas: 1
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
"""
KINDS = 10


def test_a_chart_is_applied_changed_and_taken_away(
    kubectl: Kubectl, api: Api, ns: Namespace
) -> None:
    chart = CHART.replace("NAMESPACE", ns.name)

    def apply(text: str) -> list[str]:
        return kubectl("-n", ns.name, "apply", "-f", "-", stdin=text).splitlines()

    first = apply(chart)
    assert len(first) == KINDS and all(line.endswith(" created") for line in first), first
    again = apply(chart)
    assert all(line.endswith((" unchanged", " configured")) for line in again)
    # kubectl writes stringData and the selector of a budget anew each time, on any server.
    assert {line.split()[0] for line in again if line.endswith(" configured")} <= {
        "secret/shop-secret",
        "poddisruptionbudget.policy/shop",
    }
    changed = apply(chart.replace("nginx:1.25", "nginx:1.26"))
    assert "deployment.apps/shop configured" in changed
    image = api.get(ns.path("apps/v1/deployments", "shop")).tree["spec"]["template"]["spec"][
        "containers"
    ][0]["image"]
    assert image == "nginx:1.26"
    dry = kubectl("-n", ns.name, "apply", "--dry-run=server", "-f", "-", stdin=chart)
    assert "deployment.apps/shop configured (server dry run)" in dry
    gone = kubectl("-n", ns.name, "delete", "--wait=false", "-f", "-", stdin=chart).splitlines()
    assert len(gone) == KINDS
