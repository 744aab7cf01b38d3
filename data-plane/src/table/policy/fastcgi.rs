//! Additional parameters for FastCGI applications (as in ingress-nginx).

use bytes::Bytes;
use shared::policy::LocationPolicy;
use shared::template::Template;

use super::PolicyError;

/// FastCGI parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FastCgi {
    /// Appended to a script name that ends in a slash.
    pub index: Box<str>,
    /// Additional parameters.
    pub params: Box<[Param]>,
}

/// A parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name.
    pub name: Bytes,
    /// Expanded for each request.
    pub value: Template,
}

impl FastCgi {
    pub(super) fn compile(configured: &LocationPolicy) -> Result<Option<Box<Self>>, PolicyError> {
        let params = configured.fastcgi_params.iter().flat_map(|list| &list.headers);
        let param = |it: &shared::policy::Header| {
            let is_name = |name: &str| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            };
            match is_name(&it.name) {
                true => Ok(Param {
                    name: Bytes::copy_from_slice(it.name.as_bytes()),
                    value: Template::parse(&it.value),
                }),
                false => Err(PolicyError {
                    field: "fastcgi_params",
                    problem: format!("expected the name of a parameter, got {:?}", it.name),
                }),
            }
        };
        let params = params.map(param).collect::<Result<Box<[_]>, _>>()?;
        let index = configured.fastcgi_index.as_deref().unwrap_or_default();
        Ok((!params.is_empty() || !index.is_empty()).then(|| Box::new(Self { index: index.into(), params })))
    }
}

#[cfg(test)]
mod tests {
    use shared::policy::{Header, HeaderList};

    use super::*;

    #[test]
    fn parameters_have_names() {
        let configured = |name: &str| {
            let headers = vec![Header { name: name.into(), value: "$request_uri".into() }];
            LocationPolicy { fastcgi_params: Some(HeaderList { headers }), ..LocationPolicy::default() }
        };
        assert!(FastCgi::compile(&LocationPolicy::default()).unwrap().is_none());
        assert_eq!(
            &*FastCgi::compile(&configured("SCRIPT_FILENAME")).unwrap().unwrap().params[0].name,
            b"SCRIPT_FILENAME"
        );
        for bad in ["", "A B", "A=B"] {
            assert_eq!(FastCgi::compile(&configured(bad)).unwrap_err().field, "fastcgi_params");
        }
    }
}
