//! Maintains the `caBundle` of the webhook's configuration, with which API servers verify the webhook.
//!
//! **Invariant:** nothing else in the configuration is ever written, and the bundle only if it differs, over the
//! version that was read.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use kube::Client;
use serde_json::{Value, json};

use super::ask::{get, strategic};

/// The collection of configurations.
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// The field manager.
const MANAGER: &str = "firth-control-plane";

/// The `caBundle` of one configuration.
pub struct Bundle {
    client: Client,
    name: String,
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bundle").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Bundle {
    pub(super) fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    /// The name of the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets these roots (PEM) in all webhooks of the configuration. Returns whether that changed anything.
    ///
    /// # Errors
    /// If the configuration cannot be read or written, also because another writer was faster.
    pub async fn keep(&self, roots: &str) -> Result<bool, String> {
        let path = format!("{CONFIGURATIONS}/{}", self.name);
        let text = get(&self.client, &path).await?;
        let found: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let Some(part) = part(&found, &BASE64_STANDARD.encode(roots)) else { return Ok(false) };
        strategic(&self.client, &format!("{path}?fieldManager={MANAGER}"), &part).await?;
        Ok(true)
    }
}

/// The change: a list of webhooks is merged by their names (strategic merge).
fn part(found: &Value, bundle: &str) -> Option<Value> {
    let webhooks = found["webhooks"].as_array().into_iter().flatten();
    let differ = webhooks.filter(|it| it["clientConfig"]["caBundle"] != bundle);
    let differ = differ.map(|it| json!({"name": it["name"], "clientConfig": {"caBundle": bundle}}));
    let differ: Vec<Value> = differ.collect();
    let version = &found["metadata"]["resourceVersion"];
    (!differ.is_empty()).then(|| json!({"metadata": {"resourceVersion": version}, "webhooks": differ}))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::kube::tests::fake::{Fake, Reply, status};

    fn configuration(bundles: [Option<&str>; 2]) -> Value {
        let webhook = |name: &str, roots: Option<&str>| {
            let mut config = json!({"service": {"name": "edge", "namespace": "edge"}});
            if let Some(roots) = roots {
                config["caBundle"] = BASE64_STANDARD.encode(roots).into();
            }
            json!({"name": name, "failurePolicy": "Ignore", "clientConfig": config})
        };
        let webhooks = [webhook("one", bundles[0]), webhook("two", bundles[1])];
        json!({"metadata": {"name": "edge", "resourceVersion": "7"}, "webhooks": webhooks})
    }

    #[tokio::test]
    async fn what_differs_is_written_over_the_version_that_was_read_and_nothing_else_is() {
        for (bundles, named) in [
            ([None, None], vec!["one", "two"]),
            ([Some("roots"), Some("others")], vec!["two"]),
            ([Some("roots"), Some("roots")], vec![]),
        ] {
            let text = configuration(bundles).to_string();
            let fake = Fake::new(move |_| Reply::Text(200, text.clone()));
            let bundle = Bundle::new(fake.client(), "edge".to_owned());
            assert_eq!(bundle.keep("roots").await, Ok(!named.is_empty()));
            let asked = fake.asked();
            assert!(asked.iter().all(|it| it.path == format!("{CONFIGURATIONS}/edge")), "{asked:?}");
            let Some(patch) = asked.iter().find(|it| it.method == Method::PATCH) else {
                assert!(named.is_empty());
                continue;
            };
            let roots = BASE64_STANDARD.encode("roots");
            let webhook = |name| json!({"name": name, "clientConfig": {"caBundle": roots}});
            let webhooks: Vec<Value> = named.into_iter().map(webhook).collect();
            assert_eq!(patch.body, json!({"metadata": {"resourceVersion": "7"}, "webhooks": webhooks}));
        }
    }

    #[tokio::test]
    async fn what_is_not_there_or_may_not_be_read_is_said() {
        for code in [403, 404, 500] {
            let fake = Fake::new(move |_| status(code));
            let said = Bundle::new(fake.client(), "edge".to_owned()).keep("roots").await;
            assert!(said.is_err_and(|why| why.contains(&code.to_string())));
            assert_eq!(fake.asked().len(), 1);
        }
    }
}
