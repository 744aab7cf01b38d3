//! The code generated from the fields of policies, checked against a slow implementation over the descriptors: every
//! field of every policy takes part, whenever it was added.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::sync::LazyLock;

use proptest::prelude::*;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value,
};
use shared::proto::DESCRIPTORS;
use shared::proto::config::{BackendPolicy, HostPolicy, LocationPolicy};
use shared::schema;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap());

/// What the build generates, for all three alike.
trait Policy: Message + Default + Clone + PartialEq + Debug {
    const NAME: &'static str;
    fn overlay(&mut self, over: &Self);
    fn since(&self) -> u32;
    fn unknown_value(&self) -> Option<(&'static str, i32)>;
}

macro_rules! policy {
    ($($name:ident),*) => {$(
        impl Policy for $name {
            const NAME: &'static str = concat!("firth.config.v1.", stringify!($name));
            fn overlay(&mut self, over: &Self) {
                Self::overlay(self, over);
            }
            fn since(&self) -> u32 {
                Self::since(self)
            }
            fn unknown_value(&self) -> Option<(&'static str, i32)> {
                Self::unknown_value(self)
            }
        }
    )*};
}

policy!(LocationPolicy, HostPolicy, BackendPolicy);

fn descriptor<P: Policy>() -> MessageDescriptor {
    POOL.clone().get_message_by_name(P::NAME).unwrap()
}

fn typed<P: Policy>(message: &DynamicMessage) -> P {
    P::decode(message.encode_to_vec().as_slice()).unwrap()
}

fn option(options: &DynamicMessage, name: &str) -> Option<u32> {
    let extension = POOL.get_extension_by_name(name).unwrap();
    options.has_extension(&extension).then(|| options.get_extension(&extension).as_u32()).flatten()
}

// --- random messages ------------------------------------------------------------------------------------------------

/// Any value that the field can have, often the default one: what was said counts, not what is unusual.
fn value(kind: &Kind, random: &mut fastrand::Rng) -> Value {
    match kind {
        Kind::Bool => Value::Bool(random.bool()),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(random.i32(-3..3)),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(random.i64(-3..3)),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(random.u32(..3)),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(random.u64(..3)),
        Kind::Double => Value::F64(random.f64()),
        Kind::Float => Value::F32(random.f32()),
        Kind::String => Value::String(["", "a", "b/c"][random.usize(..3)].to_owned()),
        Kind::Bytes => Value::Bytes(vec![0; random.usize(..3)].into()),
        Kind::Enum(it) => Value::EnumNumber(some_number(it, random)),
        Kind::Message(it) => Value::Message(random_message(it, random, 2)),
    }
}

fn some_number(it: &EnumDescriptor, random: &mut fastrand::Rng) -> i32 {
    let numbers: Vec<i32> = it.values().map(|value| value.number()).filter(|number| *number != 0).collect();
    random.choice(&numbers).copied().unwrap_or_default()
}

fn set(message: &mut DynamicMessage, field: &FieldDescriptor, random: &mut fastrand::Rng) {
    let value = match field.is_list() {
        true => Value::List((0..random.usize(..3)).map(|_| value(&field.kind(), random)).collect()),
        false => value(&field.kind(), random),
    };
    message.set_field(field, value);
}

/// Sets one field in `of`, on average.
fn random_message(of: &MessageDescriptor, random: &mut fastrand::Rng, one_in: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    for field in of.fields() {
        if random.usize(..one_in) == 0 {
            set(&mut message, &field, random);
        }
    }
    message
}

// --- the same, slowly -----------------------------------------------------------------------------------------------

fn slow_overlay(base: &DynamicMessage, over: &DynamicMessage) -> DynamicMessage {
    let mut both = base.clone();
    for (field, value) in over.fields() {
        both.set_field(&field, value.clone());
    }
    both
}

fn slow_since(message: &DynamicMessage) -> u32 {
    let one = |field: FieldDescriptor, value: &Value| {
        let own = option(&field.options(), "firth.since").unwrap();
        let inner = match value {
            Value::List(all) => all.iter().map(|it| inner_since(it, &field.kind())).max().unwrap_or(1),
            one => inner_since(one, &field.kind()),
        };
        own.max(inner)
    };
    message.fields().map(|(field, value)| one(field, value)).max().unwrap_or(1)
}

fn inner_since(value: &Value, kind: &Kind) -> u32 {
    match (value, kind) {
        (Value::Message(it), _) => slow_since(it),
        (Value::EnumNumber(number), Kind::Enum(it)) => {
            let value = it.get_value(*number).unwrap();
            option(&value.options(), "firth.value_since").unwrap_or(1)
        }
        _ => 1,
    }
}

fn generated_is_as_the_slow_one<P: Policy>(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let of = descriptor::<P>();
    let one_in = random.usize(1..5);
    let (base, over) = (random_message(&of, &mut random, one_in), random_message(&of, &mut random, one_in));
    let mut both = typed::<P>(&base);
    both.overlay(&typed(&over));
    let slowly = slow_overlay(&base, &over);
    assert!(both == typed::<P>(&slowly), "{base:?} under {over:?} gives {both:?}");
    assert_eq!(both.since(), slow_since(&slowly), "{both:?}");
    assert_eq!(both.unknown_value(), None, "{both:?}");
}

proptest! {
    #[test]
    fn overlay_and_since_are_as_the_descriptors_say(seed in any::<u64>()) {
        generated_is_as_the_slow_one::<LocationPolicy>(seed);
        generated_is_as_the_slow_one::<HostPolicy>(seed);
        generated_is_as_the_slow_one::<BackendPolicy>(seed);
    }
}

// --- every field ----------------------------------------------------------------------------------------------------

fn each_field<P: Policy>() {
    for field in descriptor::<P>().fields() {
        let name = field.full_name();
        let since = option(&field.options(), "firth.since").unwrap_or_else(|| panic!("{name}: no since"));
        assert!((1..=schema::CURRENT).contains(&since), "{name} is of revision {since}, beyond this build's");
        assert!(field.supports_presence(), "{name}: nobody said it and somebody said nothing are the same");

        // Said, but nothing in it: set all the same.
        let mut message = DynamicMessage::new(field.parent_message().clone());
        let empty = match field.kind() {
            Kind::Message(it) => Value::Message(DynamicMessage::new(it)),
            Kind::Enum(_) => continue,
            kind => Value::default_value(&kind),
        };
        message.set_field(&field, empty);
        let said = typed::<P>(&message);
        assert_eq!(said.since(), since, "{name}");
        let mut under = P::default();
        under.overlay(&said);
        assert!(under == said, "{name}: what is said and empty lies over what is not said");

        let mut random = fastrand::Rng::with_seed(field.number().into());
        let mut other = DynamicMessage::new(field.parent_message().clone());
        set(&mut other, &field, &mut random);
        let mut over = typed::<P>(&other);
        over.overlay(&P::default());
        assert!(over == typed::<P>(&other), "{name}: what is not said leaves what is");
    }
    assert_eq!(P::default().since(), 1, "an empty policy needs nothing");
}

#[test]
fn every_policy_field_says_since_when_it_is() {
    each_field::<LocationPolicy>();
    each_field::<HostPolicy>();
    each_field::<BackendPolicy>();
}

fn each_enum<P: Policy>() {
    for field in descriptor::<P>().fields() {
        if !matches!(field.kind(), Kind::Enum(_)) {
            continue;
        }
        for stranger in [0, -1, 99_999] {
            let mut message = DynamicMessage::new(field.parent_message().clone());
            message.set_field(&field, Value::EnumNumber(stranger));
            let (_, number) = typed::<P>(&message).unknown_value().expect("not refused");
            assert_eq!(number, stranger, "{}", field.full_name());
        }
    }
}

#[test]
fn an_enum_s_number_without_a_meaning_is_found() {
    each_enum::<LocationPolicy>();
    each_enum::<HostPolicy>();
    each_enum::<BackendPolicy>();
}
