//! Texts below the flags in `--help`: prose of one line each, which the terminal wraps, and examples of at most 80
//! columns, which it does not.

pub(super) const ALL: &str = "\
Examples:
  firth up examples/canary           serve a folder of manifests, no cluster
  firth check examples/canary        what would be refused or ignored of it
  firth proxies                      who is connected, and with which version
  firth status ingress default/web   how many proxies serve it, who refused it
  firth resources --kind route       what the newest version is made of
  firth get route ingress/default/web/canary.test.com
  firth history --limit 5            the last changes, and who has them
  firth diff                         what the newest version changed
  firth get host a.test --at 1f3a92  as it was in that version
  firth problems                     what is wrong with whose objects
  firth rollback 1f3a92              go back to that version, for 24 h
  firth unpin                        release what was held back meanwhile
  firth authority                    which root certificates the planes trust
  firth proxies -o json | jq '.[].acked'

The same API is open to grpcurl:
  cd ~/.config/firth/127.0.0.1_15010
  grpcurl -cacert ca.pem -cert cert.pem -key key.pem \\
      127.0.0.1:15010 firth.inspect.v1.Inspect/ListProxies";

pub(super) const UP: &str = "\
A built-in demo backend, on loopback only, stands in for each Service that an Ingress points to and that has no \
EndpointSlice, and for endpoints of slices with the annotation `firth.dev/demo: \"true\"`, so a folder can be tried with \
no running backends. It speaks HTTP/1.1, HTTP/2 and TLS, whatever the client uses. A Service that is in no file answers 503.

Set all other flags of the two planes by their environment variables, which docs/flags.md lists. Where both planes have \
the same one it is the proxy's: FIRTH_ADMIN and FIRTH_MAX_CONNECTIONS are the proxy's, FIRTH_CONTROL_PLANE_ADMIN and \
FIRTH_CONTROL_PLANE_MAX_CONNECTIONS the control plane's.

Examples:
  firth up examples/canary
  firth up my-manifests --no-demo
  firth up . --http 127.0.0.1:8081 --https 127.0.0.1:8444 \\
      --listen 127.0.0.1:15011
  firth up manifests --access-log stdout --log info
  FIRTH_CONFIGMAP=ingress/settings firth up manifests";

pub(super) const CHECK: &str = "\
Nothing is started, asked or changed. Exit code 1: an object would be rejected, or paths would answer 503 for the sake of \
an annotation or a setting. Exit code 2: nothing was checked, because a file cannot be read, or there is no object. What refers to an object that is not among the manifests is a warning, since Secrets are rarely \
kept with them, even if its paths answer 503 or 403 until there is one; with --strict each warning counts. \
Ingresses that name no class are judged as those of the class, as `firth up` serves them; \
--watch-ingress-without-class=false leaves them out, as a cluster does. First come objects that are rejected and \
requests that get an error, then what is served otherwise than was asked for, then what has no effect: with -o json, \
`consequence` is fails, differs or no-effect. There, kinds that are not read are entries \
of severity ignored, which --strict does not count. Set other flags of the control plane by their \
environment variables, which docs/flags.md lists.

Examples:
  firth check manifests
  firth check ingress.yaml services.yaml
  helm template my-chart | firth check --strict -
  kubectl get ingressclasses,ingresses,services,configmaps -A -o json \\
      | firth check -
  FIRTH_CONFIGMAP=ingress/settings firth check manifests
  firth check . -o json | jq -r '.[] | [.object, .field, .reason] | @tsv'";

pub(super) const PIN: &str = "\
A pin is stored in the Secret `firth-pin` in the control plane's namespace, or in a file in --state-dir: all replicas \
obey it, and it survives their restarts. Changes made meanwhile are compiled and listed as held back. A pin ends with \
`firth unpin`, or when it expires. It takes the role operator; without encryption it is accepted from loopback only.

Examples:
  firth rollback 1f3a92c04d7e --note 'canary answers 500'
  firth pin --for 2h                   keep the current version
  firth diff                           what unpinning would release
  firth unpin";

pub(super) const TOKEN: &str = "\
Keep the token secret until it is used. It contains the digest of the control plane's authority, so you need to copy \
nothing else to the proxy's host.

Examples:
  firth-control-plane --manifests manifests --state-dir state \\
      --listen 192.0.2.1:15010
  firth token --ca-dir state/authority
  FIRTH_JOIN=firth-join... firth-data-plane --state-dir proxy-state \\
      --control-plane https://192.0.2.1:15010 --http 0.0.0.0:80";

pub(super) const LOGIN: &str = "\
In a cluster, your kubeconfig authenticates you to the API server, and whoever may create tokens for the service account \
gets its role; your own credentials are never sent to the control plane. Outside a cluster, whoever may write to the \
folder of the authority may log in.

Examples:
  kubectl -n firth port-forward deploy/firth-control-plane 15010 &
  firth login --namespace firth --account firth-reader
  firth login --server https://192.0.2.1:15010 --ca-dir state/authority";

pub(super) const AUTHORITY: &str = "\
A rotation has two phases, each one and a half times the lifetime of a certificate. In the first, everybody trusts the \
new root while the old one still signs, until all certificates have been renewed. In the second, the new root signs, and \
the certificates of the old one expire; then the old root is no longer trusted. You need to do nothing in between, and no \
connection is cut. A rotation starts by itself once a year; start one if a key of the authority may have leaked. It \
takes the role operator.

Examples:
  firth authority
  firth authority rotate
  firth authority -o json | jq '.roots[] | {phase, signs_from, leaves_at}'";

pub(super) const STATUS: &str = "\
A control plane that reads a folder answers once it has read what was in it when you asked, so --wait may follow an edit \
at once. In a cluster, name the version of your edit with --resource-version.

Exit code 0: every proxy serves the newest version of the object. 3: some do not yet, are silent, or are unknown. 4: the \
version was rejected, is held back by a pin, or was refused by a proxy. 1: there is no such object, or it is not served \
here, such as an Ingress whose class is misspelt (state not-served, if it was served before); with --wait: nor was it \
within the time. 2: nobody answered. A proxy that shut down properly does not count. \
If no proxy was heard from, the answer is unknown.

Examples:
  firth status ingress default/web
  firth status ingress default/web --wait --timeout 60s
  version=$(kubectl apply -f web.yaml -o jsonpath='{.metadata.resourceVersion}')
  firth status ingress default/web --wait --resource-version $version
  firth status secret default/cert -o json | jq '.refused[].node'";
