//! Where a block of Lua ends, as the Lua module of nginx finds it: braces count outside of strings and comments.

use super::Chars;

/// Reads up to the brace that closes the block; `None`: there is none.
pub(super) fn skip(chars: &mut Chars<'_>) -> Option<()> {
    let mut depth = 1_usize;
    while depth > 0 {
        match chars.next()? {
            '{' => depth += 1,
            '}' => depth -= 1,
            quote @ ('"' | '\'') => text(quote, chars)?,
            '[' => _ = long(chars)?,
            '-' if chars.next_if_eq(&'-').is_some() => comment(chars)?,
            _ => {}
        }
    }
    Some(())
}

fn text(quote: char, chars: &mut Chars<'_>) -> Option<()> {
    loop {
        match chars.next()? {
            '\\' => _ = chars.next()?,
            c if c == quote => return Some(()),
            _ => {}
        }
    }
}

/// Of one line, or a long one.
fn comment(chars: &mut Chars<'_>) -> Option<()> {
    if chars.next_if_eq(&'[').is_some() && long(chars)? {
        return Some(());
    }
    while chars.next_if(|c| *c != '\n').is_some() {}
    Some(())
}

/// What `[[` or `[=[` begins, behind its first bracket. Returns whether it does.
fn long(chars: &mut Chars<'_>) -> Option<bool> {
    let signs = |chars: &mut Chars<'_>| std::iter::from_fn(|| chars.next_if_eq(&'=')).count();
    let level = signs(chars);
    if chars.next_if_eq(&'[').is_none() {
        return Some(false);
    }
    loop {
        if chars.next()? == ']' && signs(chars) == level && chars.next_if_eq(&']').is_some() {
            return Some(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_ends_at_its_brace() {
        for (text, rest) in [
            ("} a;", Some(" a;")),
            ("f({ a = 1, }) if b then c() end } a;", Some(" a;")),
            ("a = \"}\" b = '}' c = '\\'}' } a;", Some(" a;")),
            ("-- it's }\n a() } b;", Some(" b;")),
            ("--[[ } it's \n } ]] a() } b;", Some(" b;")),
            ("a = [==[ } ]] ]=] ]==] b[1] = c[d] } e;", Some(" e;")),
            ("a = b - c --[ }\n } d;", Some(" d;")),
            ("a = { }", None),
            ("a = '} ", None),
            ("--[[ } ", None),
        ] {
            let mut chars = text.chars().peekable();
            let ends = skip(&mut chars).is_some();
            assert_eq!(ends.then(|| chars.collect::<String>()).as_deref(), rest, "{text}");
        }
    }
}
