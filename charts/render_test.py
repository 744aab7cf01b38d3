"""What the chart renders to, with several sets of values. Run by test.sh, which provides helm ($HELM) and PyYAML."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parent / "firth"
ROOT = CHART.parent.parent
HELM = os.environ["HELM"]
PLANES = ("control-plane", "data-plane")


def helm(*args):
    return subprocess.run([HELM, *args], capture_output=True, text=True)


def template(*values, release="firth", namespace="shore", version=None):
    # Lists of --set are {a,b}, without quotes: {"a": 1} is JSON, and so is "1".
    sets = [part for value in values for part in ("--set-json" if re.search('={?"', value) else "--set", value)]
    of_cluster = ["--kube-version", version] if version else []
    return helm("template", release, str(CHART), "--namespace", namespace, *of_cluster, *sets)


def render(*values, **how):
    """The rendered objects by kind and name."""
    done = template(*values, **how)
    assert done.returncode == 0, done.stderr
    objects = {}
    for it in yaml.safe_load_all(done.stdout):
        if it:
            key = (it["kind"], it["metadata"]["name"])
            assert key not in objects, f"{key} is rendered twice"
            objects[key] = it
    return objects


def pod(objects, plane):
    found = [objects[kind, f"firth-{plane}"] for kind in ("Deployment", "DaemonSet") if (kind, f"firth-{plane}") in objects]
    assert len(found) == 1, f"{len(found)} of {plane}"
    return found[0]["spec"]["template"]["spec"]


def container(objects, plane):
    return pod(objects, plane)["containers"][0]


def flags(objects, plane):
    """Flags and their values; True for one without."""
    return {name: value if eq else True for name, eq, value in (a.partition("=") for a in container(objects, plane)["args"])}


class Lint(unittest.TestCase):
    def test_lint_is_clean(self):
        done = helm("lint", "--strict", str(CHART))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Webhook(unittest.TestCase):
    def test_nobody_asks_unless_it_is_enabled(self):
        objects = render()
        self.assertFalse([key for key in objects if "webhook" in key[1]])
        self.assertNotIn("--validating-webhook", flags(objects, "control-plane"))

    def test_api_servers_are_shown_what_they_believe(self):
        objects = render("webhook.enabled=true")
        said = flags(objects, "control-plane")
        self.assertEqual(said["--validating-webhook"], "[::]:8443")
        self.assertEqual(said["--validating-webhook-configuration"], "firth-webhook")
        self.assertNotIn("--validating-webhook-certificate", said)
        self.assertNotIn("volumes", pod(objects, "control-plane"))
        hook = objects["ValidatingWebhookConfiguration", "firth-webhook"]["webhooks"][0]
        # Filled in by the control plane, which may change this configuration and no other.
        self.assertNotIn("caBundle", hook["clientConfig"])
        self.assertEqual(objects["ClusterRole", "shore-firth-webhook"]["rules"], [{
            "apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"],
            "resourceNames": ["firth-webhook"], "verbs": ["get", "patch"]}])
        bound = objects["ClusterRoleBinding", "shore-firth-webhook"]
        self.assertEqual((bound["roleRef"]["name"], bound["subjects"][0]["name"]), ("shore-firth-webhook", "firth-control-plane"))
        self.assertEqual(hook["clientConfig"]["service"], {"name": "firth-webhook", "namespace": "shore", "port": 443, "path": "/networking/v1/ingresses"})
        self.assertEqual((hook["failurePolicy"], hook["sideEffects"]), ("Ignore", "None"))
        service = objects["Service", "firth-webhook"]["spec"]
        ports = {port["name"]: port["containerPort"] for port in container(objects, "control-plane")["ports"]}
        self.assertEqual(ports[service["ports"][0]["targetPort"]], 8443)
        policy = objects["NetworkPolicy", "firth-control-plane"]["spec"]["ingress"]
        self.assertIn({"ports": [{"port": "webhook", "protocol": "TCP"}]}, policy)

    def test_each_rendering_is_the_same(self):
        """Who renders without a cluster, as Argo CD does, changes nothing by doing it again."""
        one, other = (template("webhook.enabled=true").stdout for _ in range(2))
        self.assertEqual(one, other)
        self.assertFalse([key for key in render("webhook.enabled=true") if key[0] == "Secret"])

    def test_a_certificate_of_one_s_own(self):
        objects = render("webhook.enabled=true", "webhook.certificate.secret=mine", "webhook.failurePolicy=Fail",
                         "webhook.annotations.x=y")
        said = flags(objects, "control-plane")
        mount = container(objects, "control-plane")["volumeMounts"][0]["mountPath"]
        self.assertEqual(said["--validating-webhook-certificate"], f"{mount}/tls.crt")
        self.assertNotIn("--validating-webhook-configuration", said)
        self.assertNotIn(("ClusterRole", "shore-firth-webhook"), objects)
        self.assertEqual(pod(objects, "control-plane")["volumes"][0]["secret"]["secretName"], "mine")
        hook = objects["ValidatingWebhookConfiguration", "firth-webhook"]
        self.assertEqual((hook["metadata"]["annotations"], hook["webhooks"][0]["failurePolicy"]), ({"x": "y"}, "Fail"))
        self.assertNotIn("caBundle", hook["webhooks"][0]["clientConfig"])
        hook = render("webhook.enabled=true", "webhook.certificate.secret=mine", "webhook.certificate.caBundle=PEM")
        hook = hook["ValidatingWebhookConfiguration", "firth-webhook"]["webhooks"][0]
        self.assertEqual(hook["clientConfig"]["caBundle"], "UEVN")


class Status(unittest.TestCase):
    def rules(self, objects, name):
        return [rule for key, it in objects.items() if key[1].endswith(name) for rule in it.get("rules", [])]

    def may(self, objects, name, resource):
        return [rule["verbs"] for rule in self.rules(objects, name) if resource in rule["resources"]]

    def test_ingresses_have_the_addresses_of_the_service_in_front(self):
        objects = render()
        said = flags(objects, "control-plane")
        self.assertEqual((said["--publish-service"], said["--election-id"]), ("shore/firth", "firth-leader"))
        self.assertIn(("Service", "firth"), objects)
        self.assertEqual(self.may(objects, "control-plane-watch", "ingresses/status"), [["patch"]])
        self.assertEqual(self.may(objects, "control-plane-decisions", "leases"), [["create"], ["get", "update"]])
        self.assertEqual(self.may(objects, "control-plane-published", "services"), [["get"]])
        self.assertFalse(self.may(objects, "control-plane-decisions", "pods"))
        self.assertFalse([key for key in objects if key[1].endswith("-nodes")])

    def test_without_a_service_those_of_the_nodes(self):
        objects = render("service.enabled=false", "status.nodeInternalAddresses=true")
        said = flags(objects, "control-plane")
        self.assertNotIn("--publish-service", said)
        self.assertIn("--report-node-internal-ip-address", said)
        labels = objects["DaemonSet", "firth-data-plane"]["spec"]["template"]["metadata"]["labels"]
        wanted = dict(pair.split("=") for pair in said["--publish-nodes"].split(","))
        self.assertEqual({key: labels[key] for key in wanted}, wanted)
        self.assertEqual(self.may(objects, "control-plane-nodes", "nodes"), [["get"]])
        self.assertEqual(self.may(objects, "control-plane-decisions", "pods"), [["list"]])

    def test_what_somebody_says_goes_first_and_nothing_is_written_where_it_is_off(self):
        said = flags(render("status.addresses[0]=192.0.2.1", "status.addresses[1]=lb.test"), "control-plane")
        self.assertEqual(said["--publish-status-address"], "192.0.2.1,lb.test")
        self.assertNotIn("--publish-service", said)
        objects = render("status.publishService=edge/lb")
        self.assertEqual(objects["Role", "firth-control-plane-published"]["metadata"]["namespace"], "edge")
        objects = render("status.enabled=false")
        said = flags(objects, "control-plane")
        self.assertEqual(said["--update-status"], "false")
        self.assertNotIn("--publish-service", said)
        self.assertFalse(self.may(objects, "control-plane-watch", "ingresses/status"))
        self.assertFalse(self.may(objects, "control-plane-decisions", "leases"))


class Refusals(unittest.TestCase):
    def refused(self, *values, saying):
        done = template(*values)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(saying, done.stderr)

    def test_host_network_needs_the_nodes_addresses(self):
        self.refused("dataPlane.expose=hostNetwork", saying="networkPolicy.nodeCidrs")

    def test_misspelt_and_misshapen_values_are_refused(self):
        self.refused("controlPlane.replica=3", saying="replica")
        self.refused("configMaps.settings=no-namespace", saying="settings")
        self.refused("dataPlane.ports.http=70000", saying="http")
        self.refused("dataPlane.expose=nodePort", saying="expose")
        self.refused("defaultBackendService=pages", saying="defaultBackendService")
        self.refused("status.publishService=lb", saying="publishService")
        self.refused("disableCatchAll=maybe", saying="disableCatchAll")
        self.refused("disableSvcExternalName=1", saying="disableSvcExternalName")
        self.refused("dataPlane.authNetworks={localhost}", saying="authNetworks")
        self.refused("dataPlane.requestTimeoutSeconds=-1", saying="requestTimeoutSeconds")

    def test_what_the_api_server_would_refuse_halfway_is_refused_before(self):
        on = "dataPlane.kind=Deployment", "dataPlane.autoscaling.enabled=true"
        for owner in ("service", "webhook", "podMonitor", "serviceAccount", "dataPlane.autoscaling"):
            self.refused(*on, f"{owner}.annotations.a=true", saying="annotations/a")
        for plane in ("controlPlane", "dataPlane"):
            self.refused(f"{plane}.podAnnotations.a=5", saying="podAnnotations/a")
            self.refused(f"{plane}.nodeSelector.a=true", saying="nodeSelector/a")
            self.refused(f"{plane}.tolerations={{a}}", saying="tolerations/0")
            self.refused(f"{plane}.priorityClassName=A b", saying="priorityClassName")
            self.refused(f"{plane}.podDisruptionBudget.maxUnavailable=-1", saying="maxUnavailable")
            self.refused(f"{plane}.bind=...", saying="bind")
            self.refused(f"{plane}.extraEnv[0].name=A", f"{plane}.extraEnv[0].value=5", saying="extraEnv/0/value")
        self.refused("commonLabels.a=x y", saying="commonLabels/a")
        self.refused("watchNamespace=A", saying="watchNamespace")
        self.refused("ingressClass.name=a b", saying="ingressClass.name: expected the name of an IngressClass")
        render("ingressClass.name=a_b", "ingressClass.create=false")
        self.refused("networkPolicy.nodeCidrs={10.0.0.1}", saying="nodeCidrs/0")
        self.refused("dataPlane.stateSize=1GB", saying="stateSize")
        self.refused("serviceAccount.name=A b", saying="serviceAccount/name")
        self.refused("webhook.certificate.caBundle=PEM", saying="webhook.certificate.caBundle: has no effect")

    def test_an_account_of_others_does_not_get_the_control_planes_rights(self):
        for name in ("firth-data-plane", "firth-reader", "firth-operator"):
            self.refused(f"serviceAccount.name={name}", saying="serviceAccount.name: " + name)

    def test_an_image_has_one_tag(self):
        for wrong in ("reg.test:5000/firth:1.2", "firth:1.2", "reg.test/firth@sha256:" + "a" * 64):
            self.refused(f"image.repository={wrong}", saying="image.repository: expected no tag and no digest")
        for wrong in ("a b", ""):
            self.refused(f"image.repository={wrong}", saying="/image/repository")
        self.refused("image.tag=1 2", saying="/image/tag")
        self.assertEqual(container(render("image.repository=localhost:5000/firth", "image.tag=a"), "data-plane")["image"], "localhost:5000/firth:a")

    def test_a_default_backend_that_nobody_watches_is_refused(self):
        elsewhere = ("watchNamespace=shop", "defaultBackendService=errors/pages")
        self.refused(*elsewhere, saying="expected a Service of namespace shop, which alone is watched")

    def test_a_class_that_is_not_created_is_not_marked_as_the_default(self):
        self.refused("ingressClass.create=false", "ingressClass.default=true", saying="ingressClass.default: marks the IngressClass that the chart creates")

    def test_a_namespace_is_named_or_described(self):
        self.refused("watchNamespaceSelector=team=a", "watchNamespace=shop", saying="watchNamespaceSelector")


class Planes(unittest.TestCase):
    def test_proxies_get_no_credentials(self):
        objects = render()
        spec = pod(objects, "data-plane")
        self.assertIs(spec["automountServiceAccountToken"], False)
        account = objects["ServiceAccount", spec["serviceAccountName"]]
        self.assertIs(account["automountServiceAccountToken"], False)
        bound = {s["name"] for (kind, _), o in objects.items() if kind.endswith("Binding") for s in o["subjects"]}
        self.assertEqual(bound, {"firth-control-plane"})
        # The only token is for the control plane.
        identity = {v["name"]: v for v in spec["volumes"]}["identity"]["projected"]["sources"]
        tokens = [source["serviceAccountToken"] for source in identity if "serviceAccountToken" in source]
        self.assertEqual([token["audience"] for token in tokens], ["firth.dev"])
        self.assertEqual(str(spec["volumes"]).count("serviceAccountToken"), 1)

    def test_metrics_name_the_namespace_of_their_proxy(self):
        (container,) = pod(render(), "data-plane")["containers"]
        named = {v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"] for v in container["env"] if "valueFrom" in v}
        self.assertEqual(named["POD_NAMESPACE"], "metadata.namespace")

    def test_the_planes_know_each_other_without_a_value(self):
        for release in ("firth", "other"):
            objects = render(release=release)
            control, proxy = (
                objects["Deployment", f"{release}-control-plane"]["spec"]["template"]["spec"],
                objects["DaemonSet", f"{release}-data-plane"]["spec"]["template"]["spec"],
            )
            said = control["containers"][0]["args"]
            accounts = dict(a.removeprefix("--account=").split("=") for a in said if a.startswith("--account="))
            self.assertEqual(accounts["proxy"], f"shore/{proxy['serviceAccountName']}")
            for role in ("reader", "operator"):
                account = objects["ServiceAccount", accounts[role].removeprefix("shore/")]
                self.assertIs(account["automountServiceAccountToken"], False)
            secret = next(a for a in said if a.startswith("--ca-secret=")).partition("=")[2]
            self.assertIn(f"--ticket-keys-secret={release}-ticket-keys", said)
            volume = {v["name"]: v for v in proxy["volumes"]}["identity"]["projected"]["sources"]
            self.assertIn(secret, [source.get("configMap", {}).get("name") for source in volume])
            mount = {m["name"]: m["mountPath"] for m in proxy["containers"][0]["volumeMounts"]}["identity"]
            self.assertIn(f"--ca={mount}/ca.pem", proxy["containers"][0]["args"])
            self.assertIn(f"--token-file={mount}/token", proxy["containers"][0]["args"])

    def test_pods_are_restricted(self):
        for plane in PLANES:
            objects = render()
            spec, security = pod(objects, plane), container(objects, plane)["securityContext"]
            self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
            self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertIs(security["readOnlyRootFilesystem"], True)
            self.assertIs(security["allowPrivilegeEscalation"], False)
            self.assertEqual(security["capabilities"]["drop"], ["ALL"])
            self.assertIn("memory", container(objects, plane)["resources"]["limits"])
        self.assertEqual(container(render(), "data-plane")["securityContext"]["capabilities"]["add"], ["NET_BIND_SERVICE"])
        self.assertNotIn("add", container(render(), "control-plane")["securityContext"]["capabilities"])

    def test_without_ports_of_the_node_pods_fit_restricted(self):
        """https://kubernetes.io/docs/concepts/security/pod-security-standards: what NOTES and README say."""
        objects = render("dataPlane.expose=none", "webhook.enabled=true")
        for plane in ("data-plane", "control-plane"):
            spec, security = pod(objects, plane), container(objects, plane)["securityContext"]
            self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & set(spec))
            self.assertFalse([port for port in container(objects, plane)["ports"] if "hostPort" in port])
            self.assertLessEqual({kind for volume in spec.get("volumes", []) for kind in volume} - {"name"},
                                 {"configMap", "emptyDir", "projected", "secret"})
            self.assertLessEqual({it["name"] for it in spec["securityContext"].get("sysctls", [])}, {"net.ipv4.ip_unprivileged_port_start"})
            self.assertTrue(spec["securityContext"]["runAsNonRoot"])
            self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertIs(security["allowPrivilegeEscalation"], False)
            self.assertEqual(security["capabilities"]["drop"], ["ALL"])
            self.assertLessEqual(set(security["capabilities"].get("add", [])), {"NET_BIND_SERVICE"})

    def test_keys_are_kept_in_memory_and_the_state_is_not(self):
        objects = render()
        volumes = {v["name"]: v for v in pod(objects, "data-plane")["volumes"]}
        mounts = {m["name"]: m["mountPath"] for m in container(objects, "data-plane")["volumeMounts"]}
        self.assertEqual(volumes["keys"]["emptyDir"]["medium"], "Memory")
        self.assertEqual(flags(objects, "data-plane")["--key-dir"], mounts["keys"] + "/keys")
        self.assertNotIn("medium", volumes["state"]["emptyDir"])
        self.assertEqual(flags(objects, "data-plane")["--state-dir"], mounts["state"])

    def test_the_state_may_be_a_folder_of_the_node(self):
        volumes = {v["name"]: v for v in pod(render("dataPlane.stateHostPath=/var/lib/firth"), "data-plane")["volumes"]}
        self.assertEqual(volumes["state"], {"name": "state", "hostPath": {"path": "/var/lib/firth", "type": "DirectoryOrCreate"}})
        self.assertEqual(volumes["keys"]["emptyDir"]["medium"], "Memory")

    def test_bodies_wait_on_disk_and_not_in_the_memory_that_they_are_kept_out_of(self):
        objects = render("dataPlane.spillSize=3Gi")
        volumes = {v["name"]: v["emptyDir"] for v in pod(objects, "data-plane")["volumes"] if "emptyDir" in v}
        mounts = {m["mountPath"]: m for m in container(objects, "data-plane")["volumeMounts"]}
        mount = mounts[flags(objects, "data-plane")["--spill-dir"]]
        self.assertNotIn("medium", volumes[mount["name"]])
        self.assertIsNot(mount.get("readOnly"), True)
        self.assertEqual(flags(objects, "data-plane")["--spill-bytes"], "3Gi")

    def test_health_is_not_on_all_addresses_of_the_node(self):
        values = ("dataPlane.expose=hostNetwork", "networkPolicy.nodeCidrs={10.0.0.0/8}")
        for bind, asked in (("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("0.0.0.0", None)):
            objects = render(*values, *([] if bind == "127.0.0.1" else [f"dataPlane.hostNetworkHealthBind={bind}"]))
            self.assertEqual(flags(objects, "data-plane")["--health"], f"{bind}:10254")
            for probe in ("livenessProbe", "readinessProbe"):
                self.assertEqual(container(objects, "data-plane")[probe]["httpGet"].get("host"), asked)
        # In its own network the pod is probed at its address.
        own = container(render(), "data-plane")
        self.assertNotIn("host", own["readinessProbe"]["httpGet"])
        self.assertEqual(flags(render(), "data-plane")["--health"], "[::]:10254")

    def test_the_planes_listen_in_each_family_that_their_services_have(self):
        """Pods of a cluster with IPv6 alone have no other address to be probed at, and those of one with both have two."""
        objects = render("webhook.enabled=true")
        for plane, names in (("data-plane", ("--http", "--https", "--health")), ("control-plane", ("--listen", "--admin", "--validating-webhook"))):
            said = flags(objects, plane)
            self.assertEqual({said[name].rpartition(":")[0] for name in names}, {"[::]"})
            for probe in ("livenessProbe", "readinessProbe"):
                self.assertNotIn("host", container(objects, plane)[probe]["httpGet"])
        families = {name: it["spec"]["ipFamilyPolicy"] for (kind, name), it in objects.items() if kind == "Service"}
        self.assertEqual(families.pop("firth-control-plane-peers"), "SingleStack")
        self.assertEqual(set(families.values()), {"PreferDualStack"})
        single = render("dataPlane.bind=0.0.0.0", "service.ipFamilyPolicy=SingleStack")
        self.assertEqual(flags(single, "data-plane")["--health"], "0.0.0.0:10254")
        self.assertEqual(single["Service", "firth"]["spec"]["ipFamilyPolicy"], "SingleStack")

    def test_probes_ask_ports_that_are_open(self):
        for plane in PLANES:
            it = container(render(), plane)
            ports = {p["name"]: p["containerPort"] for p in it["ports"]}
            for probe in ("livenessProbe", "readinessProbe"):
                self.assertIn(it[probe]["httpGet"]["port"], ports)
            address = flags(render(), plane)["--admin" if plane == "control-plane" else "--health"]
            self.assertEqual(address.rpartition(":")[2], str(ports[it["readinessProbe"]["httpGet"]["port"]]))

    def test_the_proxies_find_the_control_plane(self):
        objects = render()
        service = objects["Service", "firth-control-plane"]
        url = flags(objects, "data-plane")["--control-plane"]
        self.assertEqual(url, f"https://firth-control-plane.shore.svc:{service['spec']['ports'][0]['port']}")
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertNotIn("clusterIP", render("controlPlane.service.headless=false")["Service", "firth-control-plane"]["spec"])
        labels = objects["Deployment", "firth-control-plane"]["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(service["spec"]["selector"].items(), labels.items())
        listen = flags(objects, "control-plane")
        self.assertNotIn("--insecure", listen)
        self.assertNotIn("--insecure", flags(objects, "data-plane"))

    def test_the_replicas_find_each_other(self):
        objects = render()
        peers = {env["name"]: env.get("value") for env in container(objects, "control-plane")["env"]}["FIRTH_PEERS"]
        host, _, port = peers.partition(":")
        name, namespace, _ = host.split(".")
        service = objects["Service", name]
        self.assertEqual((service["metadata"]["namespace"], service["spec"]["clusterIP"]), (namespace, "None"))
        self.assertTrue(service["spec"]["publishNotReadyAddresses"], "one that hangs is not one that is gone")
        self.assertEqual(service["spec"]["ipFamilyPolicy"], "SingleStack")
        self.assertEqual(port, str(service["spec"]["ports"][0]["port"]))
        labels = objects["Deployment", "firth-control-plane"]["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(service["spec"]["selector"].items(), labels.items())

    def test_replicas_stay_apart_and_up(self):
        objects = render()
        deployment = objects["Deployment", "firth-control-plane"]["spec"]
        self.assertEqual(deployment["replicas"], 2)
        self.assertIn("preferredDuringSchedulingIgnoredDuringExecution", pod(objects, "control-plane")["affinity"]["podAntiAffinity"])
        hard = pod(render("controlPlane.antiAffinity=hard"), "control-plane")["affinity"]["podAntiAffinity"]
        self.assertIn("requiredDuringSchedulingIgnoredDuringExecution", hard)
        self.assertIn(("PodDisruptionBudget", "firth-control-plane"), objects)
        self.assertNotIn(("PodDisruptionBudget", "firth-control-plane"), render("controlPlane.replicas=1"))

    def test_the_oldest_cluster_is_sent_no_newer_fields(self):
        oldest = re.search(r'kubeVersion: ">=(.*)-0"', (CHART / "Chart.yaml").read_text())[1]
        budget = lambda version: render(version=version)["PodDisruptionBudget", "firth-control-plane"]["spec"]
        self.assertNotIn("unhealthyPodEvictionPolicy", budget(oldest))
        self.assertEqual(budget("1.26.0")["unhealthyPodEvictionPolicy"], "AlwaysAllow")

    def test_where_pods_are_scheduled(self):
        for plane, values in zip(PLANES, ("controlPlane", "dataPlane")):
            objects = render(f"{values}.affinity.podAffinity.x=y", f"{values}.topologySpreadConstraints[0].topologyKey=zone",
                             f"{values}.topologySpreadConstraints[0].maxSkew=1", f"{values}.topologySpreadConstraints[1].topologyKey=rack",
                             f"{values}.topologySpreadConstraints[1].labelSelector.matchLabels.a=b", f"{values}.priorityClassName=high",
                             f"{values}.tolerations[0].key=edge")
            spec = pod(objects, plane)
            self.assertEqual(spec["affinity"], {"podAffinity": {"x": "y"}})
            own = {"app.kubernetes.io/name": "firth", "app.kubernetes.io/instance": "firth", "app.kubernetes.io/component": plane}
            self.assertEqual(spec["topologySpreadConstraints"], [
                {"topologyKey": "zone", "maxSkew": 1, "labelSelector": {"matchLabels": own}},
                {"topologyKey": "rack", "labelSelector": {"matchLabels": {"a": "b"}}}])
            self.assertEqual((spec["priorityClassName"], spec["tolerations"]), ("high", [{"key": "edge"}]))
            self.assertEqual(spec["nodeSelector"], {"kubernetes.io/os": "linux"})
        # One on each node as it is.
        self.assertNotIn("affinity", pod(render(), "data-plane"))

    def test_more_volumes(self):
        for plane, values in zip(PLANES, ("controlPlane", "dataPlane")):
            usual = render("webhook.enabled=true", "webhook.certificate.secret=mine")
            objects = render(f"{values}.extraVolumes[0].name=more", f"{values}.extraVolumes[0].configMap.name=cm",
                             f"{values}.extraVolumeMounts[0].name=more", f"{values}.extraVolumeMounts[0].mountPath=/more",
                             "webhook.enabled=true", "webhook.certificate.secret=mine")
            volume, mount = {"name": "more", "configMap": {"name": "cm"}}, {"name": "more", "mountPath": "/more"}
            self.assertEqual(pod(objects, plane)["volumes"], pod(usual, plane)["volumes"] + [volume])
            self.assertEqual(container(objects, plane)["volumeMounts"], container(usual, plane)["volumeMounts"] + [mount])

    def test_ways_to_expose(self):
        ports = lambda o: {p["name"]: p.get("hostPort") for p in container(o, "data-plane")["ports"]}
        by_port = render()
        self.assertEqual(ports(by_port), {"http": 80, "https": 443, "health": None})
        self.assertEqual(pod(by_port, "data-plane")["securityContext"]["sysctls"][0]["name"], "net.ipv4.ip_unprivileged_port_start")
        by_network = render("dataPlane.expose=hostNetwork", "networkPolicy.nodeCidrs={10.0.0.0/8}")
        self.assertIs(pod(by_network, "data-plane")["hostNetwork"], True)
        self.assertEqual(pod(by_network, "data-plane")["dnsPolicy"], "ClusterFirstWithHostNet")
        self.assertNotIn("sysctls", pod(by_network, "data-plane")["securityContext"])
        self.assertIn("10.0.0.0/8", str(by_network["NetworkPolicy", "firth-control-plane"]))
        self.assertEqual(set(ports(render("dataPlane.expose=none")).values()), {None})

    def test_proxies_are_replaced_side_by_side_where_two_fit_on_a_node(self):
        def strategy(*values):
            return render(*values)["DaemonSet", "firth-data-plane"]["spec"]["updateStrategy"]

        in_place = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
        self.assertEqual(strategy(), in_place)
        self.assertEqual(strategy("dataPlane.expose=hostNetwork", "networkPolicy.nodeCidrs={10.0.0.0/8}"), in_place)
        self.assertEqual(strategy("dataPlane.expose=none")["rollingUpdate"], {"maxSurge": 1, "maxUnavailable": 0})
        self.assertEqual(strategy("dataPlane.expose=none", "dataPlane.updateStrategy.type=OnDelete"), {"type": "OnDelete"})

    def test_a_process_that_hangs_is_not_given_time_to_drain(self):
        objects = render()
        for plane in "control-plane", "data-plane":
            self.assertEqual(container(objects, plane)["livenessProbe"]["terminationGracePeriodSeconds"], 5)

    def test_proxies_may_be_a_deployment(self):
        objects = render("dataPlane.kind=Deployment", "dataPlane.replicas=3")
        deployment = objects["Deployment", "firth-data-plane"]["spec"]
        self.assertEqual((deployment["replicas"], deployment["strategy"]["rollingUpdate"]), (3, {"maxSurge": 1, "maxUnavailable": 0}))
        self.assertNotIn("updateStrategy", deployment)
        # Two may be on a node, so the node's ports are not theirs.
        self.assertFalse([port for port in container(objects, "data-plane")["ports"] if "hostPort" in port])
        term = pod(objects, "data-plane")["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
        self.assertEqual(term["podAffinityTerm"]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"], "data-plane")
        budget = objects["PodDisruptionBudget", "firth-data-plane"]["spec"]
        self.assertEqual(budget["maxUnavailable"], 1)
        self.assertEqual(budget["selector"], deployment["selector"])
        # Otherwise the pods are those of a DaemonSet.
        same, other = pod(objects, "data-plane"), pod(render("dataPlane.expose=none"), "data-plane")
        same.pop("affinity")
        self.assertEqual(same, other)
        self.assertNotIn(("PodDisruptionBudget", "firth-data-plane"), render())
        self.assertNotIn(("PodDisruptionBudget", "firth-data-plane"), render("dataPlane.kind=Deployment", "dataPlane.replicas=1"))

    def test_an_autoscaler_says_how_many(self):
        values = ("dataPlane.kind=Deployment", "dataPlane.autoscaling.enabled=true")
        objects = render(*values, "dataPlane.replicas=1", "dataPlane.autoscaling.minReplicas=3")
        deployment = objects["Deployment", "firth-data-plane"]
        self.assertNotIn("replicas", deployment["spec"])
        self.assertIn(("PodDisruptionBudget", "firth-data-plane"), objects)
        spec = objects["HorizontalPodAutoscaler", "firth-data-plane"]["spec"]
        self.assertEqual(spec["scaleTargetRef"], {"apiVersion": deployment["apiVersion"], "kind": "Deployment", "name": "firth-data-plane"})
        self.assertEqual((spec["minReplicas"], spec["maxReplicas"]), (3, 11))
        target = {"type": "Utilization", "averageUtilization": 50}
        self.assertEqual(spec["metrics"], [{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
        self.assertNotIn(("HorizontalPodAutoscaler", "firth-data-plane"), render("dataPlane.kind=Deployment"))
        both = render(*values, "dataPlane.autoscaling.targetMemoryUtilizationPercentage=80")
        metrics = both["HorizontalPodAutoscaler", "firth-data-plane"]["spec"]["metrics"]
        self.assertEqual([metric["resource"]["name"] for metric in metrics], ["cpu", "memory"])

    def test_an_autoscaler_without_effect_is_refused(self):
        on = ["dataPlane.kind=Deployment", "dataPlane.autoscaling.enabled=true"]
        for values, saying in ((on[1:], "expected dataPlane.kind=Deployment"),
                               ([*on, "dataPlane.autoscaling.targetCPUUtilizationPercentage=null"], "expected targetCPU"),
                               ([*on, "dataPlane.resources.requests.cpu=null"], "dataPlane.resources.requests.cpu"),
                               ([*on, "dataPlane.autoscaling.minReplicas=12"], "got 12 and 11")):
            done = template(*values)
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn(saying, done.stderr)

    def test_a_cluster_autoscaler_may_take_the_node_of_a_deployments_proxy(self):
        annotations = lambda *values: render(*values)["Deployment", "firth-data-plane"]["spec"]["template"]["metadata"]["annotations"]
        key = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
        self.assertEqual(annotations("dataPlane.kind=Deployment"), {key: "state,keys,spill"})
        volumes = {it["name"] for it in pod(render("dataPlane.kind=Deployment"), "data-plane")["volumes"] if "projected" not in it}
        self.assertEqual(volumes, {"state", "keys", "spill"})
        own = annotations("dataPlane.kind=Deployment", 'dataPlane.podAnnotations={"a": "b", "%s": "state"}' % key)
        self.assertEqual(own, {"a": "b", key: "state"})
        # Of a DaemonSet it takes no account.
        self.assertNotIn("annotations", render()["DaemonSet", "firth-data-plane"]["spec"]["template"]["metadata"])

    def test_a_deployment_with_the_nodes_ports_is_replaced_in_place(self):
        objects = render("dataPlane.kind=Deployment", "dataPlane.expose=hostPort", "dataPlane.antiAffinity=hard")
        deployment = objects["Deployment", "firth-data-plane"]["spec"]
        self.assertEqual(deployment["strategy"]["rollingUpdate"], {"maxSurge": 0, "maxUnavailable": 1})
        self.assertIn("requiredDuringSchedulingIgnoredDuringExecution", pod(objects, "data-plane")["affinity"]["podAntiAffinity"])
        done = template("dataPlane.kind=Deployment", "dataPlane.updateStrategy.type=OnDelete")
        self.assertIn("a Deployment has no OnDelete", done.stderr)

    def test_values_reach_their_flags(self):
        objects = render("watchNamespace=shop", "defaultCertificate=shop/wild", "dataPlane.workers=3", "dataPlane.bind=[::]",
                         "dataPlane.extraArgs={--group=blue}", "log.filter=debug")
        control, data = flags(objects, "control-plane"), flags(objects, "data-plane")
        self.assertEqual((control["--watch-namespace"], control["--default-ssl-certificate"]), ("shop", "shop/wild"))
        self.assertEqual((data["--workers"], data["--http"], data["--group"], data["--log"]), ("3", "[::]:80", "blue", "debug"))

    def test_whom_a_proxy_asks_and_how_long_a_request_takes(self):
        said = ("--auth-networks", "--ocsp-networks", "--request-timeout")
        self.assertEqual([flags(render(), "data-plane").get(flag) for flag in said], [None, None, None])
        objects = render("dataPlane.authNetworks={127.0.0.0/8,::1}", "dataPlane.ocspNetworks={10.0.0.0/8}", "dataPlane.requestTimeoutSeconds=60")
        self.assertEqual([flags(objects, "data-plane").get(flag) for flag in said], ["127.0.0.0/8,::1", "10.0.0.0/8", "60"])

    def test_what_is_left_out_and_who_answers_then(self):
        said = ("--default-backend-service", "--disable-catch-all", "--disable-svc-external-name")
        self.assertEqual([flags(render(), "control-plane").get(flag) for flag in said], [None, None, None])
        for values in ([], ["watchNamespace=shop"]):
            objects = render("defaultBackendService=shop/pages", "disableCatchAll=true", "disableSvcExternalName=true", *values)
            self.assertEqual([flags(objects, "control-plane").get(flag) for flag in said], ["shop/pages", True, True])
        with_false = flags(render("disableCatchAll=false", "disableSvcExternalName=false"), "control-plane")
        self.assertEqual([with_false.get(flag) for flag in said], [None, None, None])

    def test_kubernetes_waits_until_a_proxy_has_drained(self):
        objects = render("dataPlane.drain.deadlineSeconds=3600")
        drain = sum(int(flags(objects, "data-plane")[flag]) for flag in ("--drain-grace", "--drain-deadline"))
        self.assertEqual(drain, 3610)
        self.assertGreater(pod(objects, "data-plane")["terminationGracePeriodSeconds"], drain)

    def test_flags_are_known_to_the_binaries(self):
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        objects = render("watchNamespace=shop", "defaultCertificate=shop/wild", "dataPlane.workers=3", "dataPlane.authNetworks={::1}",
                         "dataPlane.ocspNetworks={10.0.0.0/8}", "dataPlane.requestTimeoutSeconds=60", "defaultBackendService=shop/pages", "disableCatchAll=true", "disableSvcExternalName=true")
        for plane in PLANES:
            found = [p for p in (target / "debug" / f"firth-{plane}", target / "release" / f"firth-{plane}") if p.exists()]
            if not found:
                self.skipTest(f"firth-{plane} is not built")
            told = subprocess.run([max(found, key=os.path.getmtime), "--help"], capture_output=True, text=True, timeout=30).stdout
            known = set(re.findall(r"--[a-z][a-z0-9-]*", told))
            self.assertLessEqual(set(flags(objects, plane)), known, plane)


class Services(unittest.TestCase):
    def test_services_over_tcp_and_udp_have_their_ports(self):
        values = [r"tcp.5432=shop/db:sql:PROXY", r"udp.53=kube-system/kube-dns:53"]
        for expose, host in (("hostPort", True), ("hostNetwork", True), ("none", False)):
            objects = render(*values, f"dataPlane.expose={expose}", "networkPolicy.enabled=false")
            self.assertEqual(objects["ConfigMap", "firth-tcp"]["data"], {"5432": "shop/db:sql:PROXY"})
            self.assertEqual(objects["ConfigMap", "firth-udp"]["data"], {"53": "kube-system/kube-dns:53"})
            told = flags(objects, "control-plane")
            self.assertEqual((told["--tcp-services-configmap"], told["--udp-services-configmap"]), ("shore/firth-tcp", "shore/firth-udp"))
            named = [rule.get("resourceNames", []) for rule in objects["ClusterRole", "shore-firth-control-plane"]["rules"]]
            self.assertIn(["firth-tcp", "firth-udp", "ingress-nginx-controller"], named)
            ports = {it["name"]: it for it in container(objects, "data-plane")["ports"]}
            for name, number, transport in (("5432-tcp", 5432, "TCP"), ("53-udp", 53, "UDP")):
                expected = {"name": name, "containerPort": number, "protocol": transport, **({"hostPort": number} if host else {})}
                self.assertEqual(ports[name], expected)
                offered = {it["name"]: it for it in objects["Service", "firth"]["spec"]["ports"]}
                self.assertEqual(offered[name], {"name": name, "port": number, "targetPort": number, "protocol": transport})

    def test_without_any_they_are_those_of_ingress_nginx(self):
        objects = render()
        self.assertFalse([key for key in objects if key[0] == "ConfigMap" and key[1] in ("firth-tcp", "firth-udp")])
        told = flags(objects, "control-plane")
        self.assertEqual(told["--tcp-services-configmap"], "ingress-nginx/tcp-services")
        self.assertEqual(told["--udp-services-configmap"], "ingress-nginx/udp-services")

    def test_a_service_is_a_port_and_where_it_leads(self):
        for wrong in ("tcp.http=shop/db:1", "tcp.0=shop/db:1", "udp.53=kube-dns:53", "tcp.1=shop/db", "tcp.65536=shop/db:1"):
            self.assertNotEqual(template(wrong).returncode, 0, wrong)
        render("tcp.65535=shop/db:1")

    def test_a_port_has_one_user(self):
        for values, saying in (
            (["tcp.80=shop/db:1"], "tcp.80: port 80 is already used by dataPlane.ports.http"),
            (["tcp.10254=shop/db:1"], "tcp.10254: port 10254 is already used by dataPlane.ports.health"),
            (["tcp.443=shop/db:1", "dataPlane.ports.https=8443"], "tcp.443: port 443 is already used by the Service for HTTPS"),
            (["dataPlane.ports.https=80"], "dataPlane.ports.https: port 80 is already used by dataPlane.ports.http"),
            (["controlPlane.adminPort=15010"], "controlPlane.adminPort: port 15010 is already used by controlPlane.service.port"),
            (["webhook.enabled=true", "webhook.port=15020"], "webhook.port: port 15020 is already used by controlPlane.adminPort"),
        ):
            done = template(*values)
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn(saying, done.stderr)
        # Another transport, another plane, a port that is not open.
        render("udp.443=shop/quic:1", "tcp.15020=shop/db:1", "controlPlane.adminPort=8443")
        render("tcp.443=shop/db:1", "dataPlane.ports.https=8443", "service.enabled=false")


class Settings(unittest.TestCase):
    def test_settings_are_a_config_map_that_may_be_read(self):
        objects = render('settings={"use-forwarded-headers": true, "limit": 1000000, "half": 0.5, "log-format-upstream": "$host \\"x\\""}')
        told = objects["ConfigMap", "firth-settings"]["data"]
        self.assertEqual(told, {"use-forwarded-headers": "true", "limit": "1000000", "half": "0.5", "log-format-upstream": '$host "x"'})
        self.assertEqual(flags(objects, "control-plane")["--configmap"], "shore/firth-settings")
        named = [rule.get("resourceNames", []) for rule in objects["ClusterRole", "shore-firth-control-plane"]["rules"]]
        self.assertIn(["firth-settings", "tcp-services", "udp-services"], named)

    def test_without_any_they_are_those_of_ingress_nginx(self):
        objects = render()
        self.assertNotIn(("ConfigMap", "firth-settings"), objects)
        self.assertEqual(flags(objects, "control-plane")["--configmap"], "ingress-nginx/ingress-nginx-controller")

    def test_a_setting_is_a_key_and_a_text(self):
        for wrong in ('settings={"a": ["b"]}', 'settings={"a b": "c"}'):
            self.assertNotEqual(template(wrong).returncode, 0, wrong)


class Older(unittest.TestCase):
    """Values that lack some, as `helm upgrade --reuse-values` has them from an older chart: it takes the defaults of that one."""

    def absent(self, values, path=""):
        for key, value in values.items():
            yield f"{path}{key}", not value
            # Those two are Kubernetes' own, and are taken as they are.
            if isinstance(value, dict) and key not in ("resources", "nodeSelector"):
                yield from self.absent(value, f"{path}{key}.")

    def test_a_value_that_is_absent_changes_nothing_or_is_named(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        usual, refused = template().stdout, []
        # What is empty anyhow can be left out all at once.
        empty = template(*(f"{path}=null" for path, is_empty in self.absent(values) if is_empty))
        self.assertEqual(empty.stdout, usual, empty.stderr)
        for path in (path for path, is_empty in self.absent(values) if not is_empty):
            if path.endswith((".resources", ".nodeSelector")):
                self.assertEqual(template(f"{path}=null").returncode, 0, path)
                continue
            with self.subTest(path):
                done = template(f"{path}=null")
                if done.returncode == 0:
                    self.assertEqual(done.stdout, usual)
                    continue
                self.assertRegex(done.stderr, rf"{path}[.a-zA-Z]*: no value, .* use --reset-then-reuse-values")
                refused.append(path)
        self.assertIn("webhook", refused)

    def test_what_is_off_is_not_absent(self):
        render("networkPolicy.enabled=false", "dataPlane.drain.graceSeconds=0", "service.enabled=false", "ingressClass.create=false",
               "dataPlane.podDisruptionBudget=null", "dataPlane.kind=Deployment")


class FromIngressNginx(unittest.TestCase):
    """Values of the ingress-nginx chart."""
    TABLE = yaml.safe_load((CHART / "ingress-nginx-values.yaml").read_text())

    def test_each_is_told_what_it_is_here(self):
        values = {}
        for path in self.TABLE:
            at = values
            *parents, last = path.split(".")
            for key in parents:
                at = at.setdefault(key, {})
            # A parent that is in the table, too, is given with its keys.
            at.setdefault(last, {} if any(other.startswith(f"{path}.") for other in self.TABLE) else "x")
        done = template(*(f"{key}={json.dumps(value)}" for key, value in values.items() if isinstance(value, dict)),
                        *(f"{key}={value}" for key, value in values.items() if isinstance(value, str)))
        self.assertNotEqual(done.returncode, 0)
        for theirs, ours in self.TABLE.items():
            self.assertIn(f"  {theirs}: {ours}\n", done.stderr + "\n")

    def test_what_is_off_is_given_too_and_what_is_not_known_is_named(self):
        done = template("controller.hostNetwork=false", "controller.lifecycle.preStop=x", "controller.service.clusterIP=x")
        self.assertIn("controller.hostNetwork: dataPlane.expose=hostNetwork", done.stderr)
        for path in ("controller.lifecycle", "controller.service.clusterIP"):
            self.assertIn(f"  {path}: nothing here by that name", done.stderr)

    def test_what_has_another_name_here_is_not_said_to_have_none(self):
        done = template("controller.networkPolicy.enabled=true", "controller.tcp.configMapNamespace=a", "controller.metrics.service.enabled=true",
                        "controller.metrics.prometheusRule.enabled=true", "controller.service.targetPorts.https=http", "controller.opentelemetry.enabled=true",
                        "controller.maxmindLicenseKey=x", "controller.extraArgs.tcp-services-configmap=a/b")
        self.assertNotIn("nothing here by that name", done.stderr)
        self.assertIn("controller.networkPolicy: networkPolicy", done.stderr)
        self.assertIn("controller.extraArgs.tcp-services-configmap: configMaps.tcpServices", done.stderr)

    def test_what_is_not_known_is_named_beside_what_is(self):
        """Who translates what they are told must not lose the rest: here the port for plaintext would be open."""
        done = template("controller.service.type=NodePort", "controller.service.enableHttp=false", "controller.service.ports.http=8080",
                        "controller.admissionWebhooks.enabled=true", "controller.admissionWebhooks.objectSelector.a=b",
                        "controller.extraArgs.default-ssl-certificate=a/b", "controller.hostPort.enabled=true", "controller.metrics.port=1")
        said = [line.strip() for line in done.stderr.splitlines() if "nothing here by that name" in line]
        self.assertEqual(said, [f"controller.{path}: nothing here by that name" for path in (
            "admissionWebhooks.objectSelector", "metrics.port", "service.enableHttp", "service.ports")])
        self.assertIn("controller.service.type: service.type", done.stderr)

    def test_global_values_are_only_ours_in_a_chart_of_its_own(self):
        self.assertIn("global.image.registry: image.repository", template("global.image.registry=mirror.test").stderr)
        render("global.imageRegistry=mirror.test")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(CHART, Path(folder, "charts", "firth"))
            Path(folder, "Chart.yaml").write_text("apiVersion: v2\nname: all\nversion: 0.1.0\n")
            done = helm("template", "firth", folder, "--set", "global.image.registry=mirror.test")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_here_exist(self):
        """Each word that looks like a value of this chart is one."""
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        for ours in self.TABLE.values():
            for path in re.findall(r"\b[a-z]+[a-zA-Z]*(?:\.[a-zA-Z-]+)+", ours):
                if path.split(".")[0] in ("docs", "flags", "app", "settings"):
                    continue
                at = values
                for key in path.split("."):
                    self.assertIn(key, at, path)
                    at = at[key]

    def test_flags_here_exist(self):
        known = (ROOT / "docs" / "flags.md").read_text().split("\n## firth-data-plane")[0]
        flags = [flag for ours in self.TABLE.values() for flag in re.findall(r"\[(--[a-z-]+)", ours)]
        self.assertGreater(len(flags), 4)
        for flag in flags:
            self.assertIn(f"| `{flag} ", known)

    def test_the_documentation_has_the_same_table(self):
        rows = [f"| `{theirs}` | {ours} |" for theirs, ours in self.TABLE.items()]
        self.assertIn("\n".join(rows), (ROOT / "docs" / "migrating.md").read_text())


class Front(unittest.TestCase):
    """The Service in front of the proxies."""

    def spec(self, *values):
        return render(*values)["Service", "firth"]["spec"]

    def test_nothing_is_asked_for_by_itself(self):
        spec = self.spec()
        for field in ("loadBalancerSourceRanges", "loadBalancerIP", "externalIPs"):
            self.assertNotIn(field, spec)
        self.assertFalse([port for port in spec["ports"] if "nodePort" in port])

    def test_addresses_and_who_may_reach_them(self):
        spec = self.spec("service.loadBalancerSourceRanges={203.0.113.0/24,2001:db8::/32}", "service.loadBalancerIP=192.0.2.1",
                         "service.externalIPs={192.0.2.7}")
        self.assertEqual(spec["loadBalancerSourceRanges"], ["203.0.113.0/24", "2001:db8::/32"])
        self.assertEqual((spec["loadBalancerIP"], spec["externalIPs"]), ("192.0.2.1", ["192.0.2.7"]))

    def test_a_restriction_without_effect_is_refused(self):
        ranges = "service.loadBalancerSourceRanges={203.0.113.0/24}"
        for values in ([ranges, "service.type=NodePort"], [ranges, "service.enabled=false"],
                       ["service.loadBalancerIP=192.0.2.1", "service.type=ClusterIP"]):
            done = template(*values)
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn("expected service.type=LoadBalancer", done.stderr)
        self.assertNotEqual(template("service.loadBalancerSourceRanges={203.0.113.9}").returncode, 0)

    def test_ports_of_the_nodes(self):
        services = ("tcp.5432=shop/db:1", "tcp.5433=shop/db:2", "udp.53=dns/dns:53")
        ports = {it["name"]: it.get("nodePort") for it in self.spec(
            *services, "service.type=NodePort", "service.nodePorts.http=30080", "service.nodePorts.https=30443",
            "service.nodePorts.tcp.5432=30432", "service.nodePorts.udp.53=30080")["ports"]}
        self.assertEqual(ports, {"http": 30080, "https": 30443, "5432-tcp": 30432, "5433-tcp": None, "53-udp": 30080})
        for values, saying in ((["service.type=ClusterIP", "service.nodePorts.http=30080"], "service.nodePorts"),
                               (["service.nodePorts.tcp.5432=30432"], "service.nodePorts.tcp.5432"),
                               ([*services, "service.nodePorts.http=30080", "service.nodePorts.tcp.5433=30080"],
                                "service.nodePorts.tcp.5433: port 30080 is already used by service.nodePorts.http"),
                               (["service.nodePorts.http=30080", "service.nodePorts.https=30080"], "port 30080 is already used")):
            done = template(*values)
            self.assertNotEqual(done.returncode, 0, values)
            self.assertIn(saying, done.stderr)

    def test_labels(self):
        labels = render("service.labels.team=edge")["Service", "firth"]["metadata"]["labels"]
        self.assertEqual((labels["team"], labels["app.kubernetes.io/name"]), ("edge", "firth"))
        self.assertNotEqual(template(r"service.labels.app\.kubernetes\.io/name=x").returncode, 0)


class Rights(unittest.TestCase):
    WATCH = ["get", "list", "watch"]

    def rules(self, objects, kind, name):
        return {(g, r): (rule["verbs"], rule.get("resourceNames"))
                for rule in objects[kind, name]["rules"] for g in rule["apiGroups"] for r in rule["resources"]}

    def test_exactly_what_is_watched(self):
        objects = render()
        watch = self.rules(objects, "ClusterRole", "shore-firth-control-plane-watch")
        kinds = [("networking.k8s.io", "ingresses"), ("", "services"), ("discovery.k8s.io", "endpointslices"), ("", "secrets"), ("", "configmaps")]
        told = {("events.k8s.io", "events"): (["create", "patch"], None), ("networking.k8s.io", "ingresses/status"): (["patch"], None)}
        self.assertEqual(watch, {kind: (self.WATCH, None) for kind in kinds} | told)
        rest = self.rules(objects, "ClusterRole", "shore-firth-control-plane")
        names = ["ingress-nginx-controller", "tcp-services", "udp-services"]
        self.assertEqual(rest, {("networking.k8s.io", "ingressclasses"): (self.WATCH, None), ("", "configmaps"): (self.WATCH, names)})
        own = self.rules(objects, "Role", "firth-control-plane-decisions")
        # Two rules: one to create it, and this one by its name.
        self.assertEqual(own.pop(("coordination.k8s.io", "leases")), (["get", "update"], ["firth-leader"]))
        verbs = [*self.WATCH, "create", "update", "delete"]
        itself = (["get"], ["shore"])
        self.assertEqual(own, {("", "configmaps"): (verbs, None), ("", "secrets"): (verbs, None), ("", "namespaces"): itself})
        self.assertNotIn("*", str([o["rules"] for (kind, _), o in objects.items() if kind.endswith("Role")]))

    def test_labels_of_namespaces_are_read_where_somebody_goes_by_them(self):
        namespaces = ("", "namespaces")
        self.assertNotIn(namespaces, self.rules(render(), "ClusterRole", "shore-firth-control-plane-watch"))
        objects = render("watchNamespaceSelector=team=a\\,tier in (web\\,edge)")
        self.assertEqual(self.rules(objects, "ClusterRole", "shore-firth-control-plane-watch")[namespaces], (self.WATCH, None))
        self.assertEqual(flags(objects, "control-plane")["--watch-namespace-selector"], "team=a,tier in (web,edge)")

    def test_classes_are_read_unless_they_are_ignored(self):
        classes = ("networking.k8s.io", "ingressclasses")
        for values, read in ([], True), (["ingressClass.ignored=true"], False):
            objects = render(*values)
            rules = self.rules(objects, "ClusterRole", "shore-firth-control-plane")
            self.assertEqual(rules.get(classes), (self.WATCH, None) if read else None)
            self.assertEqual("--ignore-ingress-classes" in flags(objects, "control-plane"), not read)

    def test_one_namespace_is_enough_for_one_namespace(self):
        objects = render("watchNamespace=shop")
        role = objects["Role", "firth-control-plane-watch"]
        self.assertEqual(role["metadata"]["namespace"], "shop")
        self.assertNotIn(("ClusterRole", "shore-firth-control-plane-watch"), objects)
        self.assertNotIn("secrets", str([o["rules"] for (kind, _), o in objects.items() if kind == "ClusterRole"]))

    def test_the_default_certificate_of_another_namespace_may_be_read(self):
        objects = render("watchNamespace=shop", "defaultCertificate=certs/wildcard")
        role = objects["Role", "firth-control-plane-default-certificate"]
        self.assertEqual(role["metadata"]["namespace"], "certs")
        self.assertEqual(self.rules(objects, "Role", "firth-control-plane-default-certificate"), {("", "secrets"): (["get"], ["wildcard"])})
        for values in (["watchNamespace=shop", "defaultCertificate=shop/wildcard"], ["defaultCertificate=certs/wildcard"], ["watchNamespace=shop"]):
            self.assertNotIn(("Role", "firth-control-plane-default-certificate"), render(*values))

    def test_bindings_name_roles_that_exist(self):
        for values in ([], ["watchNamespace=shop"], ["serviceAccount.name=mine"]):
            objects = render(*values)
            for (kind, _), it in objects.items():
                if kind.endswith("Binding"):
                    self.assertIn((it["roleRef"]["kind"], it["roleRef"]["name"]), objects)
        self.assertNotIn(("ServiceAccount", "firth-control-plane"), render("serviceAccount.name=mine"))


class Metrics(unittest.TestCase):
    def test_prometheus_finds_both_planes_where_somebody_says_so(self):
        self.assertFalse([key for key in render() if key[0] == "PodMonitor"])
        objects = render("podMonitor.enabled=true", "podMonitor.labels.release=prometheus", "podMonitor.interval=15s")
        monitor = objects["PodMonitor", "firth"]
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")
        ends = {end["port"]: end for end in monitor["spec"]["podMetricsEndpoints"]}
        for plane, port in (("data-plane", "health"), ("control-plane", "admin")):
            self.assertEqual(ends[port], {"port": port, "interval": "15s"})
            self.assertIn(port, [it["name"] for it in container(objects, plane)["ports"]])
            kind = "Deployment" if plane == "control-plane" else "DaemonSet"
            labels = objects[kind, f"firth-{plane}"]["spec"]["template"]["metadata"]["labels"]
            self.assertLessEqual(monitor["spec"]["selector"]["matchLabels"].items(), labels.items())
        kept = render("podMonitor.enabled=true", "podMonitor.honorLabels=true")["PodMonitor", "firth"]
        self.assertTrue(all(end["honorLabels"] for end in kept["spec"]["podMetricsEndpoints"]))

    def test_nobody_is_told_to_scrape_the_loopback_of_a_node(self):
        values = ("podMonitor.enabled=true", "dataPlane.expose=hostNetwork", "networkPolicy.enabled=false")
        self.assertIn("dataPlane.hostNetworkHealthBind", template(*values).stderr)
        render(*values, "dataPlane.hostNetworkHealthBind=0.0.0.0")


class Names(unittest.TestCase):
    def every(self, *values):
        """All labels, of objects and of pods."""
        objects = render(*values, "webhook.enabled=true", 'settings={"a": "b"}', "tcp.5432=shop/db:1").items()
        every = {key: it["metadata"]["labels"] for key, it in objects}
        return every | {(*key, "pod"): it["spec"]["template"]["metadata"]["labels"] for key, it in objects if "template" in it.get("spec", {})}

    def test_labels_of_all_objects(self):
        for key, labels in self.every("commonLabels.team=edge").items():
            self.assertEqual((labels["team"], labels["app.kubernetes.io/name"]), ("edge", "firth"), key)
        objects = render("commonLabels.team=edge")
        for key in ("Deployment", "firth-control-plane"), ("DaemonSet", "firth-data-plane"):
            self.assertNotIn("team", objects[key]["spec"]["selector"]["matchLabels"], "a selector cannot be changed")

    def test_an_object_s_own_label_wins(self):
        done = template("commonLabels.team=edge", "controlPlane.podLabels.team=core", "service.labels.team=front")
        self.assertEqual((done.stdout.count("team: core"), done.stdout.count("team: front")), (1, 1))
        labels = self.every("commonLabels.team=edge", "controlPlane.podLabels.team=core", "service.labels.team=front")
        self.assertEqual(labels["Deployment", "firth-control-plane", "pod"]["team"], "core")
        self.assertEqual(labels["Deployment", "firth-control-plane"]["team"], "edge")
        self.assertEqual(labels["Service", "firth"]["team"], "front")

    def test_labels_that_selectors_have_are_the_chart_s(self):
        for values in ("commonLabels", "controlPlane.podLabels", "dataPlane.podLabels"):
            self.assertNotEqual(template(rf"{values}.app\.kubernetes\.io/component=x").returncode, 0, values)

    def test_another_name(self):
        for key, labels in self.every("nameOverride=edge").items():
            self.assertEqual(labels["app.kubernetes.io/name"], "edge", key)
        self.assertNotIn('app.kubernetes.io/name: "firth"', template("nameOverride=edge").stdout)
        self.assertIn("name=edge,", flags(render("nameOverride=edge", "service.enabled=false"), "control-plane")["--publish-nodes"])


    def strings(self, it, path=""):
        """What Kubernetes takes as text: names, namespaces, labels and selectors."""
        if isinstance(it, dict):
            for key, value in it.items():
                inner = f"{path}.{key}"
                if key in ("name", "namespace") or path.endswith(("abels", ".selector", ".annotations")):
                    yield inner, value
                if key in ("resourceNames", "args"):
                    yield from ((inner, one) for one in value)
                yield from self.strings(value, inner)
        elif isinstance(it, list):
            for value in it:
                yield from self.strings(value, path)

    def test_names_that_look_like_something_else_are_names(self):
        values = ("webhook.enabled=true", "podMonitor.enabled=true", 'watchNamespace="12"', "status.publishService=13/14", "configMaps.settings=15/16",
                  "defaultCertificate=17/18")
        for name in ("5", "1e3", "true", "null", "0x1f"):
            done = template(*values, release=name, namespace=name)
            self.assertEqual(done.returncode, 0, done.stderr)
            for it in yaml.safe_load_all(done.stdout):
                for path, value in self.strings(it or {}):
                    if not isinstance(value, dict):
                        self.assertIsInstance(value, str, f"{name}: {it['kind']}{path}")

    def test_a_release_with_a_dot(self):
        for (kind, name) in render(release="shop.edge"):
            self.assertNotIn(".", name.removeprefix("shore-"), kind)

    def test_a_flag_has_what_its_value_says(self):
        for value in ("info #x", "a: b", '"', "'", "{a}", "*"):
            objects = render(*(f"{name}={json.dumps(value)}" for name in ("log.filter", "dataPlane.accessLog")))
            self.assertEqual(flags(objects, "control-plane")["--log"], value)
            self.assertEqual((flags(objects, "data-plane")["--log"], flags(objects, "data-plane")["--access-log"]), (value, value))


class Rest(unittest.TestCase):
    def test_class_is_the_originals(self):
        self.assertEqual(render()["IngressClass", "nginx"]["spec"], {"controller": "k8s.io/ingress-nginx"})
        self.assertNotIn(("IngressClass", "nginx"), render("ingressClass.create=false"))
        marked = render("ingressClass.default=true")["IngressClass", "nginx"]["metadata"]["annotations"]
        self.assertEqual(marked, {"ingressclass.kubernetes.io/is-default-class": "true"})

    def test_the_stream_is_fenced(self):
        policy = render()["NetworkPolicy", "firth-control-plane"]["spec"]
        stream = next(rule for rule in policy["ingress"] if rule["ports"][0]["port"] == "stream")
        self.assertEqual(len(stream["from"]), 1)
        self.assertIn("podSelector", stream["from"][0])
        self.assertNotIn(("NetworkPolicy", "firth-control-plane"), render("networkPolicy.enabled=false"))

    def test_everything_is_in_the_releases_namespace(self):
        cluster = {"ClusterRole", "ClusterRoleBinding", "IngressClass"}
        for (kind, name), it in render().items():
            self.assertEqual(it["metadata"].get("namespace"), None if kind in cluster else "shore", (kind, name))

    def test_notes_say_how_to_ask(self):
        done = helm("install", "firth", str(CHART), "--dry-run=client", "--namespace", "shore")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("TLS 1.3", done.stdout)
        self.assertIn("firth login --namespace shore --account firth-reader --ca-secret firth-ca", done.stdout)
        self.assertIn("kubectl -n shore get configmap firth-ca -o jsonpath='{.data.ca\\.pem}'", done.stdout)
        other = helm("install", "edge", str(CHART), "--dry-run=client", "--namespace", "shore")
        self.assertIn("--account edge-reader --ca-secret edge-ca", other.stdout)
        self.assertIn("where the network of the cluster enforces it", done.stdout)
        self.assertIn("2 control planes and a proxy on each node", done.stdout)
        deployed = helm("install", "firth", str(CHART), "--dry-run=client", "--namespace", "shore", "--set", "dataPlane.kind=Deployment")
        self.assertIn("2 control planes and 2 proxies", deployed.stdout)
        one = helm("install", "firth", str(CHART), "--dry-run=client", "--set", "dataPlane.kind=Deployment,dataPlane.replicas=1,controlPlane.replicas=1")
        self.assertIn("1 control plane and 1 proxy, for", one.stdout)
        self.assertNotIn("by hostPort", deployed.stdout)
        self.assertIn("kubectl label namespace shore pod-security.kubernetes.io/enforce=privileged", done.stdout)
        self.assertNotIn("Pod Security", deployed.stdout, "it has no ports of the node")


if __name__ == "__main__":
    unittest.main(verbosity=1)
