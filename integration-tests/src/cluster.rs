//! A real etcd and kube-apiserver on loopback, with their own certificates and folders.
//!
//! There is no controller manager: the tests write EndpointSlices, and the deletion of a namespace is never completed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_kit::certificates;
use tokio::sync::OnceCell;

use crate::api::Api;
use crate::assets;
use crate::client;
use crate::eventually::eventually;
use crate::objects;
use crate::ports;
use crate::process::{Process, Signal};

const TOKEN: &str = "token-of-the-tests";

/// A ServiceAccount whose only rights are those that RBAC objects grant, with a token of its own.
pub const ACCOUNT: &str = "system:serviceaccount:firth:firth-control-plane";
const ACCOUNT_TOKEN: &str = "token-of-the-account";

/// How often a server that exits at once is started with other ports: another process may have taken them.
const TRIES: usize = 3;

/// Who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Authorization {
    /// Everybody everything.
    #[default]
    AlwaysAllow,
    /// The tests everything (they are of `system:masters`), others what RBAC objects say.
    Rbac,
}

impl Authorization {
    fn as_str(self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::Rbac => "RBAC",
        }
    }
}

/// One etcd and one kube-apiserver.
#[derive(Debug)]
pub struct Cluster {
    flags: Vec<String>,
    apiserver: Process,
    // Dropped after the API server, which would complain for long otherwise.
    etcd: Process,
    etcd_url: String,
    apiserver_port: u16,
    folder: TempDir,
}

impl Cluster {
    /// One of its own, with the IngressClass `nginx`.
    ///
    /// # Panics
    /// If the binaries cannot be had, or do not start.
    pub async fn start(authorization: Authorization) -> Self {
        Self::start_with(authorization, &[]).await
    }

    /// Like [`Self::start`] with further flags of the API server.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub async fn start_with(authorization: Authorization, further: &[&str]) -> Self {
        let assets = tokio::task::spawn_blocking(assets::kubernetes).await.expect("no panic");
        let assets = assets.unwrap_or_else(|error| panic!("kube-apiserver and etcd: {error}"));
        let folder = TempDir::new().expect("a temporary folder");
        write_credentials(folder.path());
        let (etcd, etcd_url) = start_etcd(&assets, folder.path()).await;
        let mut flags = flags(folder.path(), &etcd_url, authorization);
        flags.extend(further.iter().map(ToString::to_string));
        let (apiserver, apiserver_port) = start_apiserver(&assets, folder.path(), &flags).await;
        let cluster = Self { flags, apiserver, etcd, etcd_url, apiserver_port, folder };
        let api = cluster.api().await;
        api.apply(&objects::ingress_class()).await;
        cluster
    }

    /// The one that all tests of this binary share, each in a namespace of its own. It lives as long as the process.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED.get_or_init(|| Self::start(Authorization::AlwaysAllow)).await
    }

    /// A client for the runtime of this test.
    pub async fn api(&self) -> Api {
        Api::new(&self.kubeconfig()).await
    }

    /// The file that tells clients where it is and who they are.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A kubeconfig like [`Self::kubeconfig`] that leads to another port: a relay's.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn kubeconfig_by(&self, port: u16) -> PathBuf {
        write_kubeconfig(self.folder.path(), &format!("kubeconfig-{port}"), port, TOKEN)
    }

    /// A kubeconfig for [`ACCOUNT`].
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn kubeconfig_of_account(&self) -> PathBuf {
        self.kubeconfig_of_account_by(self.apiserver_port)
    }

    /// A kubeconfig for [`ACCOUNT`] that leads to another port: a relay's.
    ///
    /// # Panics
    /// Where the file cannot be written.
    pub fn kubeconfig_of_account_by(&self, port: u16) -> PathBuf {
        write_kubeconfig(self.folder.path(), &format!("kubeconfig-account-{port}"), port, ACCOUNT_TOKEN)
    }

    /// A kubeconfig of somebody who is known by a client certificate, and has no rights but those that RBAC objects give.
    ///
    /// # Panics
    /// If the files cannot be written.
    pub fn kubeconfig_of_person(&self, name: &str) -> PathBuf {
        let folder = self.folder.path();
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("it was written");
        let authority = rcgen::KeyPair::from_pem(&read("people.key")).expect("a key");
        let issuer = rcgen::Issuer::from_ca_cert_pem(&read("people.crt"), authority).expect("a certificate");
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let [shown, secret] = ["crt", "key"].map(|kind| folder.join(format!("{name}.{kind}")));
        fs::write(&shown, certificate.pem()).expect("the folder can be written to");
        fs::write(&secret, key.serialize_pem()).expect("the folder can be written to");
        let user = json!({"client-certificate": shown, "client-key": secret});
        write_kubeconfig_of(folder, &format!("kubeconfig-{name}"), self.apiserver_port, &user)
    }

    /// Port of the API server.
    pub fn port(&self) -> u16 {
        self.apiserver_port
    }

    /// Files with what the API server shows of itself, and the key of it.
    pub fn certificate(&self) -> [PathBuf; 2] {
        ["server.crt", "server.key"].map(|name| self.folder.path().join(name))
    }

    /// Kills the API server; etcd lives on.
    pub fn kill_apiserver(&mut self) {
        self.apiserver.kill();
    }

    /// Starts the API server again, with the same data and port, and waits until it is ready.
    ///
    /// # Panics
    /// If it does not become ready.
    pub async fn restart_apiserver(&mut self) {
        let assets = assets::kubernetes().expect("they were there before");
        self.apiserver = run_apiserver(&assets, self.folder.path(), &self.flags, self.apiserver_port);
        assert!(
            ready(&mut self.apiserver, self.folder.path()).await,
            "the API server ends after its restart:\n{}",
            self.apiserver.tail()
        );
    }

    /// Stops the store for a copy of what it holds. The API server finds it again.
    ///
    /// # Panics
    /// If it does not start again.
    pub async fn back_up(&mut self) {
        self.etcd.kill();
        let folder = self.folder.path();
        copy(&folder.join("etcd"), &folder.join("backup")).expect("the folder can be written to");
        self.start_etcd_again().await;
    }

    /// Puts the store back to the last backup: what happened since never did, and its revisions are given a second time.
    ///
    /// # Panics
    /// If there is no backup, or the servers do not start again.
    pub async fn restore(&mut self) {
        self.kill_apiserver();
        self.etcd.kill();
        let folder = self.folder.path();
        fs::remove_dir_all(folder.join("etcd")).expect("the folder can be written to");
        copy(&folder.join("backup"), &folder.join("etcd")).expect("there is a backup");
        self.start_etcd_again().await;
        self.restart_apiserver().await;
    }

    async fn start_etcd_again(&mut self) {
        let assets = assets::kubernetes().expect("they were there before");
        self.etcd = run_etcd(&assets, self.folder.path(), &self.etcd_url);
        assert!(is_up(&mut self.etcd, &self.etcd_url).await, "etcd ends:\n{}", self.etcd.tail());
    }

    /// Holds the API server still, or lets it go on: connections stay open and nothing comes.
    pub fn freeze_apiserver(&mut self, frozen: bool) {
        self.apiserver.signal(if frozen { Signal::Stop } else { Signal::Cont });
    }

    /// Puts an object into etcd past the API server, which would refuse it: what a later version of Kubernetes may have
    /// stored. Watchers see it as they see any object.
    ///
    /// # Panics
    /// If etcd does not take it.
    pub async fn put_into_etcd(&self, key: &str, object: &Value) {
        let put = json!({
            "key": BASE64_STANDARD.encode(key),
            "value": BASE64_STANDARD.encode(object.to_string()),
        });
        let answer = client::post_json(&self.etcd_url, "/v3/kv/put", &put).await;
        assert_eq!(answer.status, 200, "etcd refuses: {}", answer.text());
    }

    /// Makes etcd forget all but the present: an API server that starts after it knows no older revision.
    ///
    /// # Panics
    /// If etcd does not.
    pub async fn forget_history(&self) {
        let any = json!({ "key": BASE64_STANDARD.encode("a") });
        let now = client::post_json(&self.etcd_url, "/v3/kv/range", &any).await.json();
        let compact = json!({ "revision": now["header"]["revision"], "physical": true });
        let answer = client::post_json(&self.etcd_url, "/v3/kv/compaction", &compact).await;
        assert_eq!(answer.status, 200, "etcd refuses: {}", answer.text());
    }
}

async fn start_etcd(assets: &Path, folder: &Path) -> (Process, String) {
    for attempt in 1.. {
        let url = format!("http://{}", ports::free());
        let mut process = run_etcd(assets, folder, &url);
        if is_up(&mut process, &url).await {
            return (process, url);
        }
        assert!(attempt < TRIES, "etcd ends at once:\n{}", process.tail());
    }
    unreachable!("the loop ends by returning or panicking")
}

fn run_etcd(assets: &Path, folder: &Path, url: &str) -> Process {
    let peer = ports::free();
    Process::spawn(
        "etcd",
        Command::new(assets.join("etcd"))
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--listen-client-urls", url, "--advertise-client-urls", url])
            .args(["--listen-peer-urls", &format!("http://{peer}")])
            .args(["--unsafe-no-fsync", "--log-level", "error"]),
        folder,
    )
}

/// False if it has ended.
async fn is_up(etcd: &mut Process, url: &str) -> bool {
    eventually("etcd is ready", || {
        let ended = etcd.ended().is_some();
        async move {
            match client::page(url, "/health").await {
                _ if ended => Ok(false),
                Ok(page) if page.status == 200 => Ok(true),
                other => Err(other.map(|page| page.status)),
            }
        }
    })
    .await
}

/// A folder with all that is in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => _ = fs::copy(entry.path(), to)?,
        }
    }
    Ok(())
}

async fn start_apiserver(assets: &Path, folder: &Path, flags: &[String]) -> (Process, u16) {
    for attempt in 1.. {
        let port = ports::free().port();
        let mut process = run_apiserver(assets, folder, flags, port);
        if ready(&mut process, folder).await {
            return (process, port);
        }
        assert!(attempt < TRIES, "the API server ends at once:\n{}", process.tail());
    }
    unreachable!("the loop ends by returning or panicking")
}

fn run_apiserver(assets: &Path, folder: &Path, flags: &[String], port: u16) -> Process {
    write_kubeconfig(folder, "kubeconfig", port, TOKEN);
    let mut command = Command::new(assets.join("kube-apiserver"));
    command.args(flags).arg(format!("--secure-port={port}"));
    Process::spawn("kube-apiserver", &mut command, folder)
}

fn flags(folder: &Path, etcd_url: &str, authorization: Authorization) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let fixed = [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        // Else it refuses a loopback address for the Endpoints of `kubernetes`.
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        // It wants a controller manager that makes ServiceAccounts.
        "--disable-admission-plugins=ServiceAccount",
        "--profiling=false",
    ];
    let mut flags = vec![
        format!("--etcd-servers={etcd_url}"),
        format!("--authorization-mode={}", authorization.as_str()),
        file("tls-cert-file", "server.crt"),
        file("tls-private-key-file", "server.key"),
        file("token-auth-file", "tokens.csv"),
        file("client-ca-file", "people.crt"),
        file("service-account-key-file", "accounts.pub"),
        file("service-account-signing-key-file", "accounts.key"),
    ];
    flags.extend(fixed.map(str::to_owned));
    flags
}

/// Waits until the API server is ready; false when it ends instead.
async fn ready(process: &mut Process, folder: &Path) -> bool {
    let api = Api::new(&folder.join("kubeconfig")).await;
    eventually("the API server is ready", || {
        let ended = process.ended().is_some();
        let api = api.clone();
        async move {
            match api.text("/readyz").await {
                _ if ended => Ok(false),
                Ok(_) => Ok(true),
                Err(error) => Err(error.to_string()),
            }
        }
    })
    .await
}

fn write_credentials(folder: &Path) {
    let (certificate, key) = certificates::self_signed(&["127.0.0.1", "localhost", "kubernetes.default.svc"]);
    let accounts = rcgen::KeyPair::generate().expect("a key");
    let people = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = authority.self_signed(&people).expect("a certificate");
    let groups = "system:serviceaccounts,system:serviceaccounts:firth";
    let tokens =
        format!("{TOKEN},tests,tests,\"system:masters\"\n{ACCOUNT_TOKEN},{ACCOUNT},account,\"{groups}\"\n");
    for (name, content) in [
        ("server.crt", certificate),
        ("server.key", key),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
        ("tokens.csv", tokens),
        ("people.crt", authority.pem()),
        ("people.key", people.serialize_pem()),
    ] {
        fs::write(folder.join(name), content).expect("the folder can be written to");
    }
}

fn write_kubeconfig(folder: &Path, name: &str, port: u16, token: &str) -> PathBuf {
    write_kubeconfig_of(folder, name, port, &json!({"token": token}))
}

fn write_kubeconfig_of(folder: &Path, name: &str, port: u16, user: &Value) -> PathBuf {
    let file = folder.join(name);
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority": folder.join("server.crt"),
        }}],
        "users": [{"name": "tests", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
    });
    fs::write(&file, content.to_string()).expect("the folder can be written to");
    file
}
