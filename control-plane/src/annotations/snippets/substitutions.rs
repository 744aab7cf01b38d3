//! Text that is replaced in answers: nginx' `sub_filter` and its like.
//!
//! **Invariant:** those of a snippet are taken all together or not at all.

use shared::policy::{Substitution, Substitutions, TextList};
use shared::template::Template;

use super::headers::MOST;
use super::shortcuts::{MOST_BYTES, bytes, replaces_by};
use super::tokens::{Directive, switch};

/// Takes the directives out of a snippet, if they are supported.
pub(super) fn take(directives: &mut Vec<Directive>) -> Option<Substitutions> {
    let is_one = |it: &Directive| it.name().starts_with("sub_filter") && it.depth == 0 && !it.is_block;
    let found: Vec<_> = directives.iter().filter(|it| is_one(it)).collect();
    if found.len() > MOST || found.iter().map(|it| bytes(it)).sum::<usize>() > MOST_BYTES {
        return None;
    }
    let mut all = Substitutions::default();
    for it in found {
        match (it.name(), it.arguments()) {
            ("sub_filter", [text, by]) if is_literal(text) && replaces_by(by) => {
                all.pairs.push(Substitution { text: text.clone(), by: by.clone() });
            }
            // nginx refuses a second one.
            ("sub_filter_once", [word]) if all.once.is_none() => all.once = Some(switch(word)?),
            ("sub_filter_last_modified", [word]) if all.keeps_validators.is_none() => {
                all.keeps_validators = Some(switch(word)?);
            }
            ("sub_filter_types", types) if !types.is_empty() && all.types.is_none() => {
                all.types = Some(TextList { values: types.to_vec() });
            }
            _ => return None,
        }
    }
    if all == Substitutions::default() {
        return None;
    }
    directives.retain(|it| !is_one(it));
    Some(all)
}

/// What a location inherits of its server: each setting that it does not say itself.
pub(crate) fn inherit(own: Option<Substitutions>, around: Option<&Substitutions>) -> Option<Substitutions> {
    let (own, around) = (own.unwrap_or_default(), around.cloned().unwrap_or_default());
    let all = Substitutions {
        pairs: if own.pairs.is_empty() { around.pairs } else { own.pairs },
        once: own.once.or(around.once),
        types: own.types.or(around.types),
        keeps_validators: own.keeps_validators.or(around.keeps_validators),
    };
    (!all.pairs.is_empty()).then_some(all)
}

fn is_literal(text: &str) -> bool {
    !text.is_empty() && Template::parse(text).as_literal().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::snippets::tokens;

    fn taken(text: &str) -> Option<Substitutions> {
        let mut directives = tokens::directives(text).unwrap();
        let all = take(&mut directives);
        assert!(all.is_none() || directives.is_empty(), "{text}");
        all
    }

    #[test]
    fn all_of_it_is_read() {
        let text = "sub_filter '<head>' '<head><base href=\"https://$host/x/\">'; sub_filter a 'b\nc'; sub_filter_once off;
            sub_filter_types text/css application/json; sub_filter_last_modified on;";
        let all = taken(text).unwrap();
        let pairs: Vec<_> = all.pairs.iter().map(|it| (&*it.text, &*it.by)).collect();
        assert_eq!(pairs, [("<head>", "<head><base href=\"https://$host/x/\">"), ("a", "b\nc")]);
        assert_eq!((all.once, all.keeps_validators), (Some(false), Some(true)));
        assert_eq!(all.types.unwrap().values, ["text/css", "application/json"]);
        for text in [
            "gzip on;",
            "sub_filter a;",
            "sub_filter '' b;",
            "sub_filter $host b;",
            "sub_filter a $own;",
            "sub_filter a $1;",
            "sub_filter a b; sub_filter_once maybe;",
            "sub_filter a b; sub_filter_once on; sub_filter_once off;",
            "sub_filter a b; sub_filter_types;",
            "sub_filters a b;",
        ] {
            assert_eq!(taken(text), None, "{text}");
        }
    }

    #[test]
    fn a_location_inherits_each_setting_that_it_does_not_say() {
        let of = |text: &str| taken(text);
        let around = of("sub_filter a b; sub_filter_once off;");
        assert_eq!(inherit(None, around.as_ref()), around);
        let all = inherit(of("sub_filter c d;"), around.as_ref()).unwrap();
        assert_eq!((&*all.pairs[0].text, all.pairs.len(), all.once), ("c", 1, Some(false)));
        assert_eq!(inherit(of("sub_filter_once off;"), None), None);
    }
}
