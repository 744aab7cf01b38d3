//! Writes what follows from the fields of a message, so that nobody has to remember it for a new one:
//!
//! - `since`, for everything that a resource's body is made of: the highest schema revision among the fields and enum
//!   values that are set, from `(firth.since)` and `(firth.value_since)`.
//! - `unknown_value`, for policies and what they hold: the first enum that has a number nobody gave a meaning.
//! - `overlay`, for policies: fields that the other one sets replace their own.
//!
//! Whether a field is set is a question of its presence, never of its value, where the field can be absent.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage,
};

const PACKAGE: &str = "firth.config.v1";
/// The bodies of all kinds.
const BODIES: [&str; 9] =
    ["Settings", "Listener", "Host", "Route", "Backend", "Endpoints", "Certificate", "Chain", "Material"];
const POLICIES: [&str; 3] = ["LocationPolicy", "HostPolicy", "BackendPolicy"];

const DIFFERS: &str = "
fn differs_from_default<T: Default + PartialEq>(it: &T) -> bool {
    *it != T::default()
}
";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The code for `pool`, as a part of the module of [`PACKAGE`].
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String> {
    let find = |name: &&str| {
        let name = format!("{PACKAGE}.{name}");
        pool.get_message_by_name(&name).ok_or_else(|| format!("{name} is not in proto/"))
    };
    let bodies = BODIES.iter().map(find).collect::<std::result::Result<Vec<_>, _>>()?;
    let policies = POLICIES.iter().map(find).collect::<std::result::Result<Vec<_>, _>>()?;
    let in_policies = reachable(&policies);
    let mut code = String::from(DIFFERS);
    for message in reachable(&[bodies, policies.clone()].concat()).values() {
        let of_policy = in_policies.contains_key(message.full_name());
        writeln!(code, "impl {} {{", path_of(message)?)?;
        since(&mut code, message, of_policy)?;
        if of_policy {
            unknown_value(&mut code, message)?;
        }
        if policies.contains(message) {
            overlay(&mut code, message)?;
        }
        code.push_str("}\n");
    }
    Ok(code)
}

/// `roots` and the messages that they hold, by name.
fn reachable(roots: &[MessageDescriptor]) -> BTreeMap<String, MessageDescriptor> {
    let mut found = BTreeMap::new();
    let mut left = roots.to_vec();
    while let Some(message) = left.pop() {
        let held = message.fields().filter_map(|field| field.kind().as_message().cloned());
        let held: Vec<_> = held.collect();
        if found.insert(message.full_name().to_owned(), message).is_none() {
            left.extend(held);
        }
    }
    found
}

fn path_of(message: &MessageDescriptor) -> Result<String> {
    match message.parent_message() {
        None => Ok(message.name().to_owned()),
        Some(parent) => {
            Err(format!("{} stands inside {}: put it at the top", message.name(), parent.name()).into())
        }
    }
}

fn option(options: &DynamicMessage, name: &str) -> Option<u32> {
    let extension = options.descriptor().parent_pool().get_extension_by_name(name)?;
    options.has_extension(&extension).then(|| options.get_extension(&extension).as_u32()).flatten()
}

fn field_since(field: &FieldDescriptor, of_policy: bool) -> Result<u32> {
    match option(&field.options(), "firth.since") {
        Some(since) if since > 0 => Ok(since),
        None if !of_policy => Ok(1),
        _ => Err(format!("{}: a field of a policy says `[(firth.since) = ..]`", field.full_name()).into()),
    }
}

/// An expression for the `since` of the number `n` of an enum, where its values differ.
fn value_since(it: &EnumDescriptor) -> Option<String> {
    let later = it
        .values()
        .filter_map(|value| Some((value.number(), option(&value.options(), "firth.value_since")?)));
    let arms: String = later.map(|(number, since)| format!("{number} => {since}, ")).collect();
    (!arms.is_empty()).then(|| format!("match n {{ {arms}_ => 1 }}"))
}

fn since(code: &mut String, message: &MessageDescriptor, of_policy: bool) -> Result<()> {
    code.push_str("    /// Lowest schema revision that honours every field that is set.\n");
    code.push_str("    #[allow(unused_mut)] // a message without fields\n    pub fn since(&self) -> u32 {\n        let mut since = 1;\n");
    for field in message.fields() {
        if field.is_map() || field.containing_oneof().is_some_and(|it| !it.is_synthetic()) {
            return Err(format!("{}: maps and oneofs are not provided for", field.full_name()).into());
        }
        let (name, revision) = (field.name(), field_since(&field, of_policy)?);
        let inner = match field.kind() {
            Kind::Message(_) => Some("it.since()".to_owned()),
            Kind::Enum(it) => value_since(&it).map(|arms| format!("{{ let n: i32 = *it; {arms} }}")),
            _ => None,
        };
        let inner = inner.map_or_else(String::new, |inner| format!("since = since.max({inner});"));
        let own = format!("since = since.max({revision});");
        if field.is_list() {
            writeln!(code, "        for it in &self.r#{name} {{ let _ = it; {own} {inner} }}")?;
        } else if field.supports_presence() {
            writeln!(code, "        if let Some(it) = &self.r#{name} {{ let _ = it; {own} {inner} }}")?;
        } else {
            let test = "differs_from_default(it)";
            writeln!(code, "        let it = &self.r#{name}; if {test} {{ {own} {inner} }}")?;
        }
    }
    code.push_str("        since\n    }\n");
    Ok(())
}

fn unknown_value(code: &mut String, message: &MessageDescriptor) -> Result<()> {
    code.push_str(
        "    /// The first field with an enum's number that has no meaning to this build, and the number.\n",
    );
    code.push_str("    pub fn unknown_value(&self) -> Option<(&'static str, i32)> {\n");
    for field in message.fields() {
        let name = field.name();
        let test = match field.kind() {
            Kind::Message(_) => {
                "if let Some(unknown) = it.unknown_value() { return Some(unknown); }".to_owned()
            }
            Kind::Enum(it) => {
                let known = it.values().map(|value| value.number()).filter(|number| *number != 0);
                let known: Vec<String> = known.map(|number| number.to_string()).collect();
                let whole = field.full_name().trim_start_matches(PACKAGE).trim_start_matches('.').to_owned();
                let arms = if known.is_empty() { "0".to_owned() } else { known.join(" | ") };
                format!("if !matches!(*it, {arms}) {{ return Some((\"{whole}\", *it)); }}")
            }
            _ => continue,
        };
        if field.is_list() {
            writeln!(code, "        for it in &self.r#{name} {{ {test} }}")?;
        } else if field.supports_presence() {
            writeln!(code, "        if let Some(it) = &self.r#{name} {{ {test} }}")?;
        } else {
            return Err(format!("{}: an enum of a policy is `optional`", field.full_name()).into());
        }
    }
    code.push_str("        None\n    }\n");
    Ok(())
}

fn overlay(code: &mut String, message: &MessageDescriptor) -> Result<()> {
    code.push_str("    /// Fields that `over` sets replace those of `self`, as a whole.\n");
    code.push_str("    pub fn overlay(&mut self, over: &Self) {\n        let _ = over;\n");
    for field in message.fields() {
        if field.is_list() || !field.supports_presence() {
            return Err(
                format!("{}: a field of a policy is `optional` or a message", field.full_name()).into()
            );
        }
        let name = field.name();
        writeln!(code, "        if over.r#{name}.is_some() {{ self.r#{name}.clone_from(&over.r#{name}); }}")?;
    }
    code.push_str("    }\n");
    Ok(())
}
