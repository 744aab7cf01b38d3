//! What stands below the flags of `--help`: prose of one line each, which is broken where the terminal ends, and examples, no
//! longer than 80 columns, which are not.

pub(super) const ALL: &str = "\
Examples:
  firth up examples/canary           serve a folder of manifests, no cluster
  firth proxies                      who is connected, and with which version
  firth status ingress default/web   on how many it is live, and who refused it
  firth resources --kind route       what the newest version is made of
  firth get route ingress/default/web/canary.test.com
  firth history --limit 5            the last changes, and who has them
  firth diff                         what the newest version changed
  firth get host a.test --at 1f3a92  as it was in that version
  firth problems                     what is wrong with whose objects
  firth rollback 1f3a92              go back to that version, for 24 h
  firth unpin                        release what was held back meanwhile
  firth authority                    whom the planes believe, and until when
  firth proxies -o json | jq '.[].acked'

Everything that is asked here is also there for grpcurl:
  cd ~/.config/firth/127.0.0.1_15010
  grpcurl -cacert ca.pem -cert cert.pem -key key.pem \\
      127.0.0.1:15010 firth.inspect.v1.Inspect/ListProxies";

pub(super) const UP: &str = "\
A Service that an Ingress leads to and that has no EndpointSlice is played by a built-in demo backend, on a loopback \
address only, and so are endpoints of slices with the annotation `firth.dev/demo: \"true\"`: a folder can be tried with \
nothing behind it. It speaks HTTP/1.1, HTTP/2 and TLS, as it is asked. A Service that stands in no file answers 503.

What else the two planes take as flags is taken from their environment variables, of which docs/flags.md has all. What \
both have is the proxy's here: FIRTH_ADMIN and FIRTH_MAX_CONNECTIONS are FIRTH_CONTROL_PLANE_ADMIN and \
FIRTH_CONTROL_PLANE_MAX_CONNECTIONS for the control plane.

Examples:
  firth up examples/canary
  firth up my-manifests --no-demo
  firth up . --http 127.0.0.1:8081 --https 127.0.0.1:8444 \\
      --listen 127.0.0.1:15011
  firth up manifests --access-log stdout --log info
  FIRTH_CONFIGMAP=ingress/settings firth up manifests";

pub(super) const PIN: &str = "\
The decision is a Secret `firth-pin` in the control plane's namespace, or a file of --state-dir: all replicas act on it, \
and it outlives them. What objects say meanwhile is compiled, listed as held back and not released. It ends with `firth \
unpin`, or by itself when its time is over. Decisions are an operator's; without encryption they are taken from loopback.

Examples:
  firth rollback 1f3a92c04d7e --note 'canary answers 500'
  firth pin --for 2h                   keep what is offered
  firth diff                           what the end of the pin would release
  firth unpin";

pub(super) const TOKEN: &str = "\
The token is a secret until it is used. It has the digest of the control plane's authority, so nothing else has to be \
copied to the proxy's host.

Examples:
  firth-control-plane --manifests manifests --state-dir state \\
      --listen 192.0.2.1:15010
  firth token --ca-dir state/authority
  FIRTH_JOIN=firth-join... firth-data-plane --state-dir state \\
      --control-plane https://192.0.2.1:15010 --http 0.0.0.0:80";

pub(super) const LOGIN: &str = "\
In a cluster the kubeconfig says who you are, and whoever may make tokens for the account gets its role: no credential of \
yours leaves for the control plane. Outside one, whoever may write the folder of its authority may log in.

Examples:
  kubectl -n firth port-forward deploy/firth-control-plane 15010 &
  firth login --namespace firth --account firth-reader
  firth login --server https://192.0.2.1:15010 --ca-dir state/authority";

pub(super) const AUTHORITY: &str = "\
A rotation has two phases, each one and a half lives of a certificate. In the first the new root is believed and the old \
one signs, until everybody has renewed and heard of it. In the second the new one signs, and what the old one signed runs \
out; then it is believed no more. Nothing has to be done in between, and no connection is cut. It happens by itself once a \
year; do it where a key of the authority may be known to somebody. Rotating is an operator's.

Examples:
  firth authority
  firth authority rotate
  firth authority -o json | jq '.roots[] | {phase, signs_from, leaves_at}'";

pub(super) const STATUS: &str = "\
Ends with 0 where every proxy serves the newest version of the object, with 3 where some do not yet, are silent or \
unknown, and with 4 where it was rejected, is held back by a pin, or was refused by a proxy. A proxy that left does not \
count; where nobody was heard the answer is unknown, never all.

Examples:
  firth status ingress default/web
  firth status ingress default/web --wait --timeout 60s
  version=$(kubectl apply -f web.yaml -o jsonpath='{.metadata.resourceVersion}')
  firth status ingress default/web --wait --resource-version $version
  firth status secret default/cert -o json | jq '.refused[].node'";
