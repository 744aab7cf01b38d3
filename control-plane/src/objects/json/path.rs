//! Finds the field path at a position of a JSON text: `spec.rules[0].host`. Used only for reports.

/// The nesting at a position, from the outside in.
enum Frame {
    /// In an object, at this key; `None` before its first.
    Object(Option<String>),
    /// In an array, at this element.
    Array(usize),
}

/// The path of what ends at `column` (in bytes) of `line`, both from 1, as the JSON parser counts them.
pub(super) fn at(text: &str, line: usize, column: usize) -> String {
    let before = start_of(text, line);
    // The last byte read is the end of the value or its opening bracket: not beyond it.
    let end = (before + column.saturating_sub(1)).min(text.len());
    render(&frames(&text.as_bytes()[..end]))
}

/// Whether the value at that position is an element of a list.
pub(super) fn is_in_list(text: &str, line: usize, column: usize) -> bool {
    let end = (start_of(text, line) + column).min(text.len());
    matches!(frames(&text.as_bytes()[..end]).last(), Some(Frame::Array(_)))
}

fn start_of(text: &str, line: usize) -> usize {
    text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum()
}

fn frames(text: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    // Whether the next string of an object is a key.
    let mut key_next = false;
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'{' => {
                frames.push(Frame::Object(None));
                key_next = true;
            }
            b'[' => frames.push(Frame::Array(0)),
            b'}' | b']' => {
                frames.pop();
                key_next = false;
            }
            b',' => match frames.last_mut() {
                Some(Frame::Array(at)) => *at += 1,
                Some(Frame::Object(_)) => key_next = true,
                None => {}
            },
            b'"' => {
                let length = string_length(rest);
                if let (true, Some(Frame::Object(key))) = (key_next, frames.last_mut()) {
                    *key = Some(String::from_utf8_lossy(&rest[..length]).into_owned());
                    key_next = false;
                }
                rest = rest.get(length + 1..).unwrap_or_default();
            }
            _ => {}
        }
    }
    frames
}

/// Bytes before the closing quote of a string, or all.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at,
            _ => {}
        }
    }
    text.len()
}

fn render(frames: &[Frame]) -> String {
    let mut path = String::new();
    for frame in frames {
        match frame {
            Frame::Object(None) => {}
            // Keys with dots are names of annotations and labels.
            Frame::Object(Some(key)) if key.contains('.') => path.push_str(&format!("[{key}]")),
            Frame::Object(Some(key)) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
            Frame::Array(at) => path.push_str(&format!("[{at}]")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::at;

    /// The path at the end of the first `mark`.
    fn path(text: &str, mark: &str) -> String {
        let end = text.find(mark).unwrap() + mark.len();
        let line = text[..end].matches('\n').count() + 1;
        at(text, line, end - text[..end].rfind('\n').map_or(0, |newline| newline + 1))
    }

    #[test]
    fn paths() {
        let text = "{\"a\":{\"b,\\\"}\":[1,{\"c\":true}]},\n \"metadata\":{\"labels\":{\"x.io/y\":[2]}},\"d\":[[],{}]}";
        assert_eq!(path(text, "1"), "a.b,\\\"}[0]");
        assert_eq!(path(text, "true"), "a.b,\\\"}[1].c");
        assert_eq!(path(text, "\"x.io/y\":["), "metadata.labels[x.io/y]");
        assert_eq!(path(text, "[[],{}]"), "d[1]");
    }

    #[test]
    fn any_place_is_fine() {
        let text = "{\"a\":\n[\"\\";
        for line in 0..4 {
            for column in 0..9 {
                at(text, line, column);
                super::is_in_list(text, line, column);
            }
        }
    }
}
