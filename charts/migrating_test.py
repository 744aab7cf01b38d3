"""The commands of docs/migrating.md, run as they are written against a cluster of stubs. Run by test.sh, which provides helm ($HELM)."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHART = Path(__file__).resolve().parent / "firth"
PAGE = CHART.parent.parent / "docs" / "migrating.md"
HELM = os.environ["HELM"]

# kubectl, helm and firth in one: objects are files, and what was asked is in a log.
STUB = r'''
import json, os, sys
from pathlib import Path

cluster = Path(os.environ["CLUSTER"])
tool, words = Path(sys.argv[0]).name, sys.argv[1:]
with open(cluster / "log", "a") as log:
    log.write(json.dumps([tool, *words]) + "\n")

def at(kind, namespace, name):
    return cluster / f"{kind.lower()}.{namespace}.{name}.json"

def read(kind, namespace, name):
    path = at(kind, namespace, name)
    if not path.exists():
        sys.exit(f"Error from server (NotFound): {kind} {name} not found")
    return json.loads(path.read_text())

def several(text):
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        it, end = decoder.raw_decode(text)
        yield it
        text = text[end:].strip()

if tool == "helm" and words[0] == "uninstall":
    for path in cluster.glob("*.json"):
        if json.loads(path.read_text())["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "Helm":
            path.unlink()
if tool != "kubectl":
    sys.exit()
namespace = words[words.index("--namespace") + 1] if "--namespace" in words else "default"
rest = [word for i, word in enumerate(words) if word != "--namespace" and words[i - 1] != "--namespace"]
match rest:
    case ["get", "configmap", name, "-o", "json"]:
        print(json.dumps(read("configmap", namespace, name)))
    case ["get", *named, "-o", "json"]:
        print(json.dumps({"kind": "List", "items": [read(kind, namespace, name) for kind, name in (it.split("/") for it in named)]}))
    case ["apply", "-f", "-"]:
        objects = list(several(sys.stdin.read()))
        if not objects:
            sys.exit("error: no objects passed to apply")
        for it in objects:
            meta = it["metadata"]
            at(it["kind"], meta["namespace"], meta["name"]).write_text(json.dumps(it))
    case ["patch", "configmap", name, "--type", "merge", "--patch", patch]:
        it = read("configmap", namespace, name)
        it["data"].update(json.loads(patch)["data"])
        at("configmap", namespace, name).write_text(json.dumps(it))
    case ["rollout", "status", named]:
        read(*[named.split("/")[0], namespace, named.split("/")[1]])
    case ["port-forward", *_]:
        pass
    case _:
        sys.exit(f"the stub does not know kubectl {words}")
'''


def commands(heading):
    """The commands below a heading, in order."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))


def release(kind, name, **more):
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"namespace": "ingress-nginx", "name": name, "labels": labels, "uid": "1"}, **more}


def of_ingress_nginx():
    """What its chart makes, called ingress-nginx, as an API server shows it."""
    labels = {"app.kubernetes.io/name": "ingress-nginx", "app.kubernetes.io/component": "default-backend"}
    template = {"metadata": {"labels": labels}, "spec": {"serviceAccountName": "ingress-nginx-backend", "serviceAccount": "ingress-nginx-backend",
                                                        "volumes": [{"name": "pages", "configMap": {"name": "pages"}}]}}
    return [
        release("ConfigMap", "ingress-nginx-controller", data={"proxy-body-size": "8m", "add-headers": "ingress-nginx/ingress-nginx-custom-add-headers"}),
        release("ConfigMap", "ingress-nginx-tcp", data={"5432": "db/sql:5432"}),
        release("ConfigMap", "ingress-nginx-udp", data={"53": "dns/dns:53"}),
        release("ConfigMap", "ingress-nginx-custom-add-headers", data={"X-A": "b"}),
        release("ConfigMap", "ingress-nginx-custom-proxy-headers", data={"X-C": "d"}),
        release("Deployment", "ingress-nginx-defaultbackend", spec={"selector": {"matchLabels": labels}, "template": template}, status={"replicas": 1}),
        release("Service", "ingress-nginx-defaultbackend", spec={"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "selector": labels,
                                                                "ports": [{"port": 80, "targetPort": "http"}]}),
    ]


@unittest.skipUnless(shutil.which("jq"), "there is no jq")
class Handover(unittest.TestCase):
    """Step 4: what ingress-nginx leaves behind."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.cluster, tools = Path(cls.folder.name, "cluster"), Path(cls.folder.name, "tools")
        cls.cluster.mkdir()
        tools.mkdir()
        for tool in ("kubectl", "helm", "firth"):
            (tools / tool).write_text(f"#!{sys.executable}\n{STUB}")
            (tools / tool).chmod(0o755)
        for it in of_ingress_nginx():
            meta = it["metadata"]
            Path(cls.cluster, f"{it['kind'].lower()}.{meta['namespace']}.{meta['name']}.json").write_text(json.dumps(it))
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "CLUSTER": str(cls.cluster)}
        script = "sleep() { :; }\n" + commands("4. Hand over the status and the class")
        cls.done = subprocess.run(["sh"], input=script, env=environment, capture_output=True, text=True, timeout=120)
        cls.log = [json.loads(line) for line in (cls.cluster / "log").read_text().splitlines()]

    def there(self, kind, namespace, name):
        path = self.cluster / f"{kind}.{namespace}.{name}.json"
        self.assertTrue(path.exists(), f"{kind} {namespace}/{name}: {sorted(it.name for it in self.cluster.iterdir())}")
        return json.loads(path.read_text())

    def upgrades(self):
        """The values that each upgrade sets."""
        for words in self.log:
            if words[:3] == ["helm", "upgrade", "firth"]:
                yield [words[i + 1] for i, word in enumerate(words) if word == "--set"]

    def test_nothing_of_it_fails(self):
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""))

    def test_each_config_map_has_a_copy_of_its_own(self):
        """`copy ingress-nginx-tcp` once replaced the settings by the map of ports."""
        self.assertEqual(self.there("configmap", "firth", "settings")["data"], {
            "proxy-body-size": "8m", "add-headers": "firth/add-headers", "proxy-set-headers": "firth/proxy-set-headers"})
        for name, data in (("tcp", {"5432": "db/sql:5432"}), ("udp", {"53": "dns/dns:53"}), ("add-headers", {"X-A": "b"}), ("proxy-set-headers", {"X-C": "d"})):
            copy = self.there("configmap", "firth", name)
            self.assertEqual((copy["data"], set(copy["metadata"])), (data, {"name", "namespace"}))

    def test_the_error_pages_stay(self):
        service, deployment = (self.there(kind, "ingress-nginx", "error-pages") for kind in ("service", "deployment"))
        pod = deployment["spec"]["template"]
        self.assertEqual(service["spec"]["selector"], pod["metadata"]["labels"])
        self.assertEqual(deployment["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"])
        self.assertNotIn("default-backend", str(pod["metadata"]["labels"]), "those of the Deployment that goes")
        self.assertFalse({"clusterIP", "clusterIPs"} & set(service["spec"]), "they are the other one's")
        self.assertEqual(pod["spec"], {"volumes": [{"name": "pages", "configMap": {"name": "pages"}}]}, "its account goes")

    def test_what_the_pinned_version_leads_to_is_there_before_and_after(self):
        at = {tool: next(i for i, words in enumerate(self.log) if words[: len(tool)] == list(tool)) for tool in (
            ("firth", "pin"), ("helm", "uninstall"), ("helm", "upgrade", "firth"), ("kubectl", "--namespace", "ingress-nginx", "rollout"))}
        order = sorted(at, key=at.get)
        self.assertEqual([words[0] for words in order], ["kubectl", "helm", "firth", "helm"])
        self.assertEqual(order[1][1], "upgrade", "the version that is pinned names the copy")
        first = next(self.upgrades())
        self.assertEqual(first, ["defaultBackendService=ingress-nginx/error-pages"])

    def test_the_chart_takes_the_values_and_they_name_what_is_there(self):
        values = [value for values in self.upgrades() for value in values]
        named = dict(value.split("=", 1) for value in values)
        for value, kind in (("configMaps.settings", "configmap"), ("configMaps.tcpServices", "configmap"), ("configMaps.udpServices", "configmap"),
                            ("defaultBackendService", "service")):
            self.there(kind, *named[value].split("/"))
        installed = re.findall(r"--set (\S+)", commands("2. Install Firth next to ingress-nginx"))
        self.assertIn("ingressClass.create=false", installed)
        for sets in (installed, [*installed, *values]):
            done = subprocess.run([HELM, "template", "firth", str(CHART), "--namespace", "firth", *(word for it in sets for word in ("--set", it))],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
