"""What is served: a plain host, one with TLS, one with policies, and many."""
import base64
import hashlib
import json
import os

MANY = 400
NAMESPACE = "train"
# Services with fixed endpoints. Affinity and canaries belong to a Service wherever it is used, so each has its own.
SERVICES = ("web", "calls", "kept", "weighted")


def meta(name, **rest):
    return {"name": name, "namespace": NAMESPACE, **rest}


def service(name):
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(name),
            "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}


def endpoint_slice(service, port):
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": meta(f"{service}-{port}", labels={"kubernetes.io/service-name": service}),
            "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]}


def ingress(name, hosts, paths, tls=False, kind="Prefix", **annotations):
    backends = [{"path": path, "pathType": kind, "backend": {"service": {"name": to, "port": {"number": 80}}}}
                for path, to in paths]
    annotations = {f"nginx.ingress.kubernetes.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {"ingressClassName": "nginx", "rules": [{"host": host, "http": {"paths": backends}} for host in hosts]}
    if tls:
        # Without a Secret: the proxy's own certificate.
        spec["tls"] = [{"hosts": hosts}]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": meta(name, annotations=annotations), "spec": spec}


def objects():
    """All but the endpoints."""
    yield {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nginx"},
           "spec": {"controller": "k8s.io/ingress-nginx"}}
    yield {"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": "ingress-nginx-controller", "namespace": "ingress-nginx"},
           "data": {"use-gzip": "true", "keep-alive-requests": "1000"}}
    digest = base64.b64encode(hashlib.sha1(b"secret").digest()).decode()
    yield {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta("users"),
           "data": {"auth": base64.b64encode(f"user:{{SHA}}{digest}".encode()).decode()}}
    yield from (service(name) for name in (*SERVICES, "moving"))
    yield ingress("plain", ["plain.test"], [("/", "web"), ("/moving", "moving"), ("/weighted", "weighted")])
    yield ingress("tls", ["tls.test"], [("/", "web"), ("/api", "web"), ("/moving", "moving")], tls=True)
    yield ingress("calls", ["calls.test"], [("/", "calls")], tls=True, backend_protocol="GRPC")
    yield ingress("streamed", ["streamed.test"], [("/", "web")], tls=True, proxy_request_buffering="off",
                  proxy_body_size="8m")
    yield ingress("api", ["api.test"], [("/api(/|$)(.*)", "web")], tls=True, kind="ImplementationSpecific",
                  ssl_redirect="false", use_regex="true", rewrite_target="/$2", enable_cors="true",
                  proxy_connect_timeout="3", proxy_read_timeout="20", proxy_send_timeout="20",
                  limit_rps="100000", whitelist_source_range="127.0.0.0/8,10.0.0.0/8")
    yield ingress("kept", ["kept.test"], [("/", "kept")], affinity="cookie", session_cookie_name="kept",
                  auth_type="basic", auth_secret="users", proxy_body_size="8m")
    yield ingress("canary", ["plain.test"], [("/weighted", "moving")], canary="true", canary_weight="10")
    for number in range(MANY):
        yield ingress(f"many-{number}", [f"h{number}.many.test"],
                      [("/", "web"), ("/static", "moving"), (f"/api/v{number % 3}", "web")], tls=number % 2 == 0,
                      ssl_redirect="false")


def save(folder, name, what):
    text = "---\n".join(json.dumps(it) + "\n" for it in what)
    with open(os.path.join(folder, f".{name}"), "w") as file:
        file.write(text)
    os.replace(os.path.join(folder, f".{name}"), os.path.join(folder, name))


def write(folder, ports):
    """All of it."""
    os.makedirs(folder)
    save(folder, "objects.yaml", objects())
    save(folder, "endpoints.yaml", [endpoint_slice(name, port) for name in SERVICES for port in ports])
    write_slice(folder, ports)


def write_slice(folder, ports):
    """Those endpoints that come and go."""
    save(folder, "moving.yaml", [endpoint_slice("moving", port) for port in ports])
