"""The steps of the acceptance run, in order. Each says what it saw; each failure is a `Failed`."""

import base64
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter

from capture import Verdict
from kube import HERE, NAMESPACE, RELEASE, ROOT, SHOP, Failed, asking, eventually, get, helm, kubectl, pods, reachable, rolled_out, run
from load import Load

REPOSITORY = "localhost/firth-run"
HOST = "orders.firth-acceptance.test"
# Short-lived certificates, in seconds, so that a rotation completes during the run.
LIFE = 40
CONTROL, PROXIES = f"deployment/{RELEASE}-control-plane", f"daemonset/{RELEASE}-data-plane"


class Acceptance:
    """One run."""

    def __init__(self, tag, folder, say):
        self.tag, self.folder, self.say = tag, folder, say
        self.pcap = folder / "pods.pcap"
        self.tcpdump, self.done = None, threading.Event()
        self.addresses = {"control-plane": set(), "data-plane": set()}
        self.loads, self.watcher = [], threading.Thread(target=self.watch_addresses, daemon=True)

    def run(self):
        self.origins()
        self.listen_in()
        self.install()
        self.reach()
        self.ask()
        self.restart_control_planes()
        self.replace_proxies_in_place()
        self.replace_proxies_side_by_side()
        self.rotate()
        self.nothing_in_plaintext()
        self.each_seen_once()
        self.uninstall()

    def origins(self):
        for namespace in (SHOP, NAMESPACE):
            run("kubectl", "create", "namespace", namespace)
        key, certificate = self.folder / "key.pem", self.folder / "cert.pem"
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", key, "-out", certificate)
        kubectl("create", "secret", "tls", "web", f"--key={key}", f"--cert={certificate}", namespace=SHOP)
        objects = (HERE / "objects.yaml").read_text().replace("IMAGE", f"{REPOSITORY}:{self.tag}").replace("HOST", HOST)
        kubectl("apply", "-f", "-", stdin=objects, namespace=SHOP)
        rolled_out("deployment/witness", SHOP)
        self.say("the origins are there")

    def listen_in(self):
        """All of the pod network but users' own requests, from before the first of our pods."""
        bridge = os.environ.get("FIRTH_POD_BRIDGE", "cni0")
        words = ["tcpdump", "-i", bridge, "-s", "0", "-U", "-Z", "root", "-B", "16384", "-w", self.pcap, "not port 80 and not port 443 and not port 8080"]
        self.tcpdump = subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True)
        first = self.tcpdump.stderr.readline()
        if "listening on" not in first:
            raise Failed(f"tcpdump: {first}{self.tcpdump.stderr.read()}")
        self.watcher.start()
        self.say(first.strip())

    def watch_addresses(self):
        """Which pods had which addresses: those that are gone by the end, too."""
        while not self.done.wait(0.5):
            for component, known in self.addresses.items():
                try:
                    known |= set(pods(component).values())
                except Failed as error:
                    self.say(f"kubectl get pods: {error}")

    def install(self):
        begun = time.monotonic()
        helm("install", RELEASE, str(ROOT / "charts/firth"), "--set", f"image.repository={REPOSITORY}", "--set", f"image.tag={self.tag}")
        rolled_out(CONTROL)
        rolled_out(PROXIES)
        self.say(f"helm install, with nothing said but the image: both planes ready after {time.monotonic() - begun:.1f} s")

    def reach(self):
        def by_load_balancer():
            given = get("service", RELEASE)["status"]["loadBalancer"].get("ingress")
            return given and given[0].get("ip")

        self.balanced = eventually("the Service of type LoadBalancer gets an address", by_load_balancer)
        host = get("pods", "-l", "app.kubernetes.io/component=data-plane")["items"][0]["status"]["hostIP"]
        self.ways = {"load-balancer": (self.balanced, 80), "host-port": (host, 80)}
        for way, address in self.ways.items():
            with Load(f"first-{way}", address, HOST, clients=2) as load:
                eventually(f"{HOST} is served at {address}", lambda: load.answered)
            self.loads.append(load)
            shown = shown_certificate((address[0], 443))
            if shown != (self.folder / "cert.pem").read_text().strip():
                raise Failed(f"{address[0]}:443 shows another certificate:\n{shown}")
        # What `kubectl get ingress` and external-dns show.
        eventually(f"the Ingress says that it is to be reached at {self.balanced}", lambda: published("web") == [self.balanced])
        self.say(f"{HOST} is served, by HTTP and TLS, at LoadBalancer {self.balanced} and hostPort {host}")

    def ask(self):
        with asking(self.folder / "reader") as planes:
            proxies = self.in_sync(planes)
            problems = planes.firth("problems").strip()
            if problems != "no problems":
                raise Failed(f"firth problems: {problems}")
            services = planes.grpcurl("list").split()
            listed = planes.grpcurl("firth.inspect.v1.Inspect/ListProxies")
            if "firth.inspect.v1.Inspect" not in services or proxies[0]["id"] not in listed:
                raise Failed(f"grpcurl: {services}, {listed}")
            try:
                planes.firth("authority", "rotate")
            except Failed:
                pass
            else:
                raise Failed("a reader may rotate the authority")
        self.say(f"by kubectl port-forward: firth proxies: {proxies[0]['id']} in sync; grpcurl list: {', '.join(services)}")

    def in_sync(self, planes):
        """The connected proxies, when each node has one and all have the newest version."""
        nodes = get("daemonset", f"{RELEASE}-data-plane")["status"]["desiredNumberScheduled"]

        def check():
            proxies = [it for it in planes.proxies() if it["silent_seconds"] is None]
            fine = len(proxies) == nodes and all(it["in_sync"] and not it["refused_total"] for it in proxies)
            return fine and proxies

        return eventually(f"{nodes} proxies are in sync", check)

    def loaded(self, name, ways):
        """Loads by these ways, which are on the final account."""
        loads = [Load(f"{name}-{way}", self.ways[way], HOST) for way in ways]
        self.loads += loads
        return loads

    def without_a_loss(self, name, ways, change):
        """Does something under load, and lets no request be lost for it."""
        loads = self.loaded(name, ways)
        begun = time.monotonic()
        with Together(loads):
            change()
            for load in loads:
                load.goes_on()
        told = ", ".join(f"{len(load.answered)} by {way}" for way, load in zip(ways, loads))
        bad = [problem for load in loads for problem in load.problems]
        if bad:
            raise Failed(f"{name}: {told} answered, {len(bad)} not: {bad[:5]}")
        self.say(f"{name}: {time.monotonic() - begun:.0f} s, requests: {told}, each answered 200")

    def restart(self, what):
        kubectl("rollout", "restart", what)
        rolled_out(what)

    def restart_control_planes(self):
        self.without_a_loss("restart-of-the-control-plane", ("load-balancer", "host-port"), lambda: self.restart(CONTROL))
        with asking(self.folder / "reader") as planes:
            self.in_sync(planes)

    def replace_proxies_in_place(self):
        """By hostPort no second proxy fits on a node: between the old one and the new one nothing listens. What reached a proxy is answered."""
        loads = self.loaded("replacement-in-place", ("load-balancer", "host-port"))
        with Together(loads):
            self.restart(PROXIES)
            for way, load in zip(self.ways, loads):
                eventually(f"{way} reaches the new proxy", lambda: reachable(load.address))
                time.sleep(2)
                settled = len(load.problems)
                load.goes_on()
                if len(load.problems) != settled:
                    raise Failed(f"{load.name}: still failing with the new proxy: {load.problems[settled:][:5]}")
        self.say_gaps(loads)

    def say_gaps(self, loads):
        """What a proxy took has been answered; how long there was none that took anything."""
        for load in loads:
            bad = load.of("lost", "wrong")
            if bad:
                raise Failed(f"{load.name}: {len(bad)} requests that a proxy took were not answered: {bad[:5]}")
            refused = [at for _, at, _, _ in load.of("unreachable")]
            gap = f"nothing took connections for {max(refused) - min(refused):.1f} s ({len(refused)} tries)" if refused else "no gap"
            self.say(f"{load.name}: {len(load.answered)} answered 200, none lost; {gap}")

    def replace_proxies_side_by_side(self):
        """Without hostPort a new proxy is ready before the old one goes: no connection fails."""
        # And short certificates, for the rotation.
        values = ["dataPlane.expose=none", f"controlPlane.extraArgs={{--certificate-life={LIFE}s}}"]
        words = [word for value in values for word in ("--set", value)]

        def upgrade():
            helm("upgrade", RELEASE, str(ROOT / "charts/firth"), "--reuse-values", *words)
            rolled_out(CONTROL)
            rolled_out(PROXIES)

        # The last proxy with the node's port keeps it until it has ended: if a LoadBalancer's address is one of the
        # node's own, it is caught by the rule of that port, and leads to a proxy that accepts no more connections.
        loads = self.loaded("upgrade-to-side-by-side", ("load-balancer",))
        with Together(loads):
            upgrade()
            eventually("the last proxy with the node's port is gone", lambda: len(pods("data-plane")) == 1)
            loads[0].goes_on()
        self.say_gaps(loads)
        if reachable(self.ways["host-port"]):
            raise Failed("something still has the node's port: requests to the LoadBalancer may go by it")
        self.without_a_loss("replacement-side-by-side", ("load-balancer",), lambda: self.restart(PROXIES))

    def rotate(self):
        """A rotation from its first phase to its end, on the streams that were there before."""
        def roots(planes):
            planes.login("operator")
            return [(root["digest"], root["phase"]) for root in planes.authority()["roots"]]

        def change():
            with asking(self.folder / "operator", "operator") as planes:
                before = {it["id"]: it["connected"] for it in self.in_sync(planes)}
                (old, _), = roots(planes)
                planes.firth("authority", "rotate")
                for phases in (["signs", "believed"], ["leaves", "signs"], ["signs"]):
                    shown = eventually(f"the authority's roots: {phases}",
                                       lambda: (now := roots(planes)) and [phase for _, phase in now] == phases and now, 5 * LIFE)
                    self.say(f"authority: {', '.join(f'{digest[:8]} {phase}' for digest, phase in shown)}")
                (new, _), = shown
                # Longer than the lifetime of any certificate of the old root.
                time.sleep(LIFE)
                planes.login("operator")
                after = {it["id"]: it["connected"] for it in self.in_sync(planes)}
                if new == old or before != after:
                    raise Failed(f"roots {old} then {new}; streams {before} then {after}")
                self.say(f"the root is another one, and so are all certificates; streams as before: {after}")

        self.without_a_loss("rotation-of-the-authority", ("load-balancer",), change)

        def anew():
            self.restart(CONTROL)
            self.restart(PROXIES)

        # A proxy that starts now knows only the new root, and enrols with it.
        self.without_a_loss("restart-after-the-rotation", ("load-balancer",), anew)

    def nothing_in_plaintext(self):
        self.done.set()
        self.watcher.join()
        self.tcpdump.send_signal(signal.SIGINT)
        said = self.tcpdump.communicate(timeout=30)[1]
        if "0 packets dropped by kernel" not in said:
            raise Failed(f"tcpdump lost packets: {said}")
        needles = [b"firth.config.v1", b"firth.inspect.v1", b"firth.identity", b"PRI * HTTP/2.0", HOST.encode(), *private_key(self.folder / "key.pem")]
        verdict = Verdict(self.pcap.read_bytes(), self.addresses["control-plane"], self.addresses["data-plane"], needles, b"GET /readyz HTTP/1.1")
        unheard = self.addresses["data-plane"] - verdict.proxies_heard
        if verdict.problems or unheard or not verdict.control_found:
            raise Failed(f"the capture: {verdict.problems[:5]}, of proxies {unheard} nothing, probes seen: {verdict.control_found}")
        self.say(
            f"the capture has {verdict.conversations} directions, {verdict.bytes} bytes between planes, of all {len(verdict.proxies_heard)} proxies "
            f"and {len(self.addresses['control-plane'])} control planes that there were: TLS alone; {len(needles)} needles are nowhere on the pod network"
        )

    def each_seen_once(self):
        seen = Counter()
        for pod in get("pods", "-l", "app=witness", namespace=SHOP)["items"]:
            seen.update(kubectl("logs", pod["metadata"]["name"], namespace=SHOP).split())
        answered = set().union(*(load.answered for load in self.loads))
        missing = [number for number in answered if number not in seen]
        often = [number for number, times in seen.items() if times > 1]
        strange = [number for number in seen if number not in answered]
        if missing or often or strange:
            raise Failed(f"the origins' logs: {len(missing)} answered and not seen {missing[:5]}, {len(often)} seen twice {often[:5]}, {len(strange)} seen and not answered {strange[:5]}")
        self.say(f"the origins saw {len(seen)} requests, each once: all that were answered, and no other")

    def uninstall(self):
        helm("uninstall", RELEASE, "--wait")
        kinds = "clusterroles,clusterrolebindings,ingressclasses,validatingwebhookconfigurations"
        left = run("kubectl", "get", kinds, "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name").split()
        if left:
            raise Failed(f"helm uninstall leaves {left}")
        self.say("helm uninstall leaves nothing of the cluster's own")

    def tell(self):
        """What helps to find out why it failed: without lines of the access log, which are most of a proxy's."""
        plane = "app.kubernetes.io/component"
        for words in (("get", "pods", "-A", "-o", "wide"), ("get", "events", "-A", "--sort-by=.lastTimestamp"),
                      ("logs", "-l", f"{plane}=control-plane", "--tail=40", "--prefix"),
                      ("logs", "-l", f"{plane}=data-plane", "--tail=20000", "--prefix")):
            try:
                said = [line for line in kubectl(*words).splitlines() if '] "GET /' not in line]
                print("\n".join([f"--- kubectl {' '.join(words)}", *said[-60:]]), flush=True)
            except Failed as error:
                print(error, flush=True)

    def close(self):
        self.done.set()
        if self.tcpdump and self.tcpdump.poll() is None:
            self.tcpdump.terminate()
            self.tcpdump.wait()


class Together:
    """Several loads as one."""

    def __init__(self, loads):
        self.loads = loads

    def __enter__(self):
        for load in self.loads:
            load.__enter__()

    def __exit__(self, *failed):
        for load in self.loads:
            load.stop.set()
        for load in self.loads:
            load.__exit__(*failed)


def published(ingress):
    status = get("ingress", ingress, namespace=SHOP)["status"].get("loadBalancer", {})
    return [it.get("ip") for it in status.get("ingress", [])]


def shown_certificate(address):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address, 5) as raw, context.wrap_socket(raw, server_hostname=HOST) as stream:
        return ssl.DER_cert_to_PEM_cert(stream.getpeercert(True)).strip()


def private_key(file):
    """A private key as it could stand in plaintext: a line of its PEM, and its bytes."""
    lines = [line for line in file.read_text().splitlines() if "-----" not in line]
    return [lines[1].encode(), base64.b64decode("".join(lines))[36:68]]
